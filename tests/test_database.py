"""Opening databases that exist: addresses, what is refused in one line, and what is never done."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from savermark.database.address import parse_address
from savermark.database.inspect import inspect
from savermark.database.opening import open_database
from savermark.errors import BackendError, SavermarkError, Unsupported, UsageError

if TYPE_CHECKING:
    from fix_databases import Left


@pytest.mark.parametrize(
    ("uri", "kind", "target"),
    [
        ("a.sqlite", "file", "a.sqlite"),
        ("/x/a b.db", "file", "/x/a b.db"),
        ("sqlite:///a.db", "file", "a.db"),
        ("sqlite:////x/a%20b.db", "file", "/x/a b.db"),
        ("sqlite+aiosqlite:///a.db", "file", "a.db"),
        ("postgresql://u:p@h/d", "server", "postgresql://u:p@h/d"),
        ("postgres://h/d", "server", "postgres://h/d"),
        ("postgresql+psycopg://h/d", "server", "postgresql://h/d"),
        ("host=h dbname=d", "server", "host=h dbname=d"),
    ],
)
def test_an_address_is_read_as_it_is_written(uri: str, kind: str, target: str) -> None:
    address = parse_address(uri)
    assert (address.kind, address.target) == (kind, target)
    assert "u:p" not in repr(address)


@pytest.mark.parametrize("uri", ["", " ", "mysql://h/d", "sqlite://a.db", "sqlite:///", "file://a"])
def test_an_address_that_is_none_names_the_forms(uri: str) -> None:
    with pytest.raises(UsageError, match="sqlite:///"):
        parse_address(uri)


def test_a_file_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    for write in (False, True):
        with (
            pytest.raises(UsageError, match="does not exist"),
            open_database(str(tmp_path / "none.db"), write=write),
        ):
            pass
    assert list(tmp_path.iterdir()) == []


OLD = (
    "CREATE TABLE checkpoints (thread_id TEXT, thread_ts TEXT, parent_ts TEXT, checkpoint BLOB,"
    " metadata BLOB, PRIMARY KEY (thread_id, thread_ts))"
)


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        (OLD, Unsupported, "older than 0.2"),
        ("CREATE TABLE other (a)", BackendError, "no table checkpoints and no table writes"),
        ("CREATE TABLE checkpoints (thread_id TEXT)", BackendError, "no table writes"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, statement: str, error: type[SavermarkError], words: str
) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(error, match=words), open_database(str(path)):
        pass


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no database, but long enough to be read as the first page of one\n" * 20)
    with pytest.raises(BackendError, match="not a SQLite database"), open_database(str(text)):
        pass
    with pytest.raises(UsageError, match="is a folder"), open_database(str(tmp_path)):
        pass


def test_a_column_that_is_missing_is_named(left: Left) -> None:
    left.sql("ALTER TABLE writes RENAME COLUMN idx TO position")
    with pytest.raises(Unsupported, match=r"writes .*has no column idx"), open_database(left.uri):
        pass


def test_thread_ids_that_are_not_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _write_wal(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE checkpoints SET thread_id = x'ff'")
    connection.close()
    with pytest.raises(Unsupported, match="thread ids that are not text"), open_database(str(path)):
        pass


def test_a_server_is_refused_without_its_password(postgres_dsn: str) -> None:
    secret = "s3cret-of-mine"
    for uri in (
        f"postgresql://nobody:{secret}@127.0.0.1:1/none?connect_timeout=2",
        f"host=127.0.0.1 port=1 user=nobody password={secret} connect_timeout=2",
        f"postgresql://{secret}:{secret}@[bad/none",
    ):
        with pytest.raises(SavermarkError) as caught, open_database(uri):
            pass
        assert secret not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_database_without_the_tables_is_refused(postgres_dsn: str) -> None:
    with pytest.raises(BackendError, match="no table checkpoints"), open_database(postgres_dsn):
        pass


def _everything(left: Left) -> list[Any]:
    return [sorted(left.sql(f"SELECT * FROM {table}"), key=repr) for table in (
        "checkpoints", "writes"
    )]  # fmt: skip


def test_reading_cannot_change_anything(left: Left) -> None:
    left.hand("a").put("c1", None, {"x": [1]}).write("c1", ("x", [2])).put("c2", "c1", {"x": [3]})
    before = _everything(left)
    with open_database(left.uri) as database:
        connection: Any = database.rows.connection  # type: ignore[attr-defined]
        for table in ("checkpoints", "writes" if left.name == "sqlite" else "checkpoint_writes"):
            with pytest.raises((sqlite3.Error, psycopg.Error), match=r"(?i)read-?only"):
                connection.execute(f"DELETE FROM {table}")
        with pytest.raises(BackendError), database.rows.transaction("a") as txn:
            txn.delete_all()
        with pytest.raises(Unsupported, match="reading only"):
            database.saver()
        inspect(database)
    assert _everything(left) == before


def test_writing_hands_out_a_saver_on_the_same_connection(left: Left) -> None:
    left.hand("a").put("c1", None, {"x": [1]}).put("c2", "c1", {"x": [2]})
    with open_database(left.uri, write=True) as database:
        saver = database.saver()
        found = saver.get_tuple({"configurable": {"thread_id": "a", "checkpoint_ns": ""}})
        assert found is not None
        assert found.checkpoint["channel_values"] == {"x": [2]}
        with database.rows.transaction("a") as txn:
            assert txn.delete_checkpoints([("", "c2")]) == 1
        found = saver.get_tuple({"configurable": {"thread_id": "a", "checkpoint_ns": ""}})
        assert found is not None
        assert found.checkpoint["id"] == "c1"
        saver.put_writes(found.config, [("x", [5])], "task")
    assert left.sql("SELECT count(*) FROM writes") == [(1,)]


def test_tables_without_task_path_are_read_and_left_so(left: Left) -> None:
    left.hand("a").put("c1", None, {"x": [1]}).write("c1", ("x", [2]))
    left.sql("ALTER TABLE writes DROP COLUMN task_path")
    with open_database(left.uri) as database:
        assert not database.facts.task_path
        assert inspect(database).tables["writes"].rows == 1
        assert [row.task_path for row in database.rows.image("a").writes] == [""]
    with open_database(left.uri, write=True):
        pass
    with open_database(left.uri) as database:
        assert not database.facts.task_path


READ = """
import os, sys
import savermark.database.sqlite
from savermark.database.opening import open_database
from savermark.database.inspect import inspect
from savermark.errors import SavermarkError
if os.geteuid() == 0:
    os.setuid(65534)
try:
    with open_database(sys.argv[1]) as database:
        print(inspect(database).total.rows)
except SavermarkError as error:
    print(error)
"""


def _as_nobody(path: Path) -> str:
    """Read a file from a process that may not write to its folder."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_file_on_read_only_media_is_read_if_its_wal_is_in_it(tmp_path: Path) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:  # whose parents everyone may enter
        folder = Path(name)
        path = folder / "a.db"
        _write_wal(path)
        whole, log = path.read_bytes(), path.with_name("a.db-wal")
        assert not log.exists()
        folder.chmod(0o555)
        try:
            assert _as_nobody(path).strip() == "2"
            log.write_bytes(b"\0" * 64)
            message = _as_nobody(path)
        finally:
            folder.chmod(0o755)
        assert "copy the file and what lies beside it" in message
        assert path.read_bytes() == whole


def _write_wal(path: Path) -> None:
    from langgraph.checkpoint.sqlite import SqliteSaver

    from fix_threads import Hand

    with SqliteSaver.from_conn_string(str(path)) as saver:
        Hand(saver, "a").put("c1", None, {"x": 1}).put("c2", "c1", {"x": 2})
    path.chmod(0o644)
