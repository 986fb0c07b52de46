"""What is SQLite's own: bytes by direct count, the WAL, old files, bulk loading, errors."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savermark.backends.base import Location
from savermark.backends.sqlite import SqliteBackend, SqliteStore, store_path
from savermark.errors import BackendError
from tiny_graph import adrive, drive, expected, read

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = ("one", "two", "three")


@pytest.fixture
def place(tmp_path: Path) -> Location:
    return Location(tmp_path, "store")


@pytest.fixture
def store(place: Location) -> Iterator[SqliteStore]:
    made = SqliteBackend.create(place)
    assert isinstance(made, SqliteStore)
    yield made
    made.destroy()


def query(store: SqliteStore, text: str) -> list[tuple]:
    connection = sqlite3.connect(store.path)
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()


def change(store: SqliteStore, *statements: str) -> None:
    connection = sqlite3.connect(store.path)
    try:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    finally:
        connection.close()


def parts(store: SqliteStore) -> dict[tuple[str, str | None], int]:
    return {(row.component, row.table): row.bytes for row in store.footprint()}


def by_hand(store: SqliteStore) -> dict[tuple, list[int]]:
    """Rows and bytes of each group, added up row by row in Python."""
    groups: dict[tuple, list[int]] = {}
    rows = [
        (thread, space, "checkpoints", None, checkpoint, metadata)
        for thread, space, checkpoint, metadata in query(
            store, "SELECT thread_id, checkpoint_ns, checkpoint, metadata FROM checkpoints"
        )
    ] + [
        (thread, space, "writes", channel, value, b"")
        for thread, space, channel, value in query(
            store, "SELECT thread_id, checkpoint_ns, channel, value FROM writes"
        )
    ]
    for *key, one, two in rows:
        sizes = [len(x.encode() if isinstance(x, str) else x) for x in (one, two) if x is not None]
        group = groups.setdefault(tuple(key), [0, 0])
        group[0] += 1
        group[1] += sum(sizes)
    return groups


def as_groups(store: SqliteStore) -> dict[tuple, list[int]]:
    rows = store.storage()
    assert all(row.stored_bytes == row.logical_bytes for row in rows)
    return {
        (row.thread_id, row.checkpoint_ns, row.table, row.channel): [row.rows, row.logical_bytes]
        for row in rows
    }


def test_bytes_equal_a_count_by_hand(store: SqliteStore) -> None:
    drive(store, "a", WORDS)
    adrive(store, "b", WORDS[:1])
    # old files hold text, and nothing forbids NULL
    change(
        store,
        "UPDATE checkpoints SET metadata = 'täxt' WHERE thread_id = 'b'",
        "UPDATE writes SET value = NULL WHERE thread_id = 'b' AND channel = 'log'",
    )
    assert as_groups(store) == by_hand(store)


@pytest.mark.parametrize("channels", [3, 40])
def test_many_or_late_channels_are_counted(
    store: SqliteStore, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel beyond the sample, and more of them than filtered sums pay for."""
    monkeypatch.setattr("savermark.backends._sqlite_sizes._SAMPLE", 2)
    drive(store, "a", WORDS)
    change(
        store,
        *(
            "INSERT INTO writes VALUES "
            f"('{thread}', '', 'c', 'task', '', {n}, 'channel {n}', 'bytes', zeroblob({n}))"
            for n in range(channels)
            for thread in ("a", "b")
        ),
    )
    assert as_groups(store) == by_hand(store)


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_storage_takes_a_constant_number_of_statements(
    store: SqliteStore, threads: int | None
) -> None:
    """None over threads: the statements that touch the saver's tables are counted."""
    drive(store, "t", WORDS)
    store.clone_threads({"t": [f"c{n}" for n in range(20)]})
    seen: list[str] = []
    with store._measuring() as connection:
        connection.set_trace_callback(seen.append)
    names = None if threads is None else [f"c{n}" for n in range(threads)]
    store.storage(names)
    assert len([text for text in seen if "main." in text]) == 3
    seen.clear()
    store.floor(names)
    store.row_digests(names)
    assert len([text for text in seen if "FROM main." in text]) == 4


def test_file_without_task_path_is_measured_unchanged(store: SqliteStore, place: Location) -> None:
    drive(store, "t", WORDS)
    change(store, "ALTER TABLE writes DROP COLUMN task_path")
    store.close()
    old = SqliteBackend.attach(place)
    assert as_groups(store) == by_hand(store)
    assert old.floor()[0].distinct_payloads > 0
    assert set(old.row_digests()) == {"t"}
    assert old.clone_threads({"t": ["u"]}) == sum(row.rows for row in old.storage(["t"]))
    columns = [row[1] for row in query(store, "PRAGMA table_info(writes)")]
    assert "task_path" not in columns
    old.close()


def test_clone_has_the_digest_of_its_source(store: SqliteStore) -> None:
    drive(store, "t", WORDS)
    store.clone_threads({"t": ["u", "v"]})
    assert len(set(store.row_digests().values())) == 1


@pytest.mark.parametrize("open_saver", [False, True])
def test_clone_leaves_every_setting_as_it_was(store: SqliteStore, open_saver: bool) -> None:
    drive(store, "t", WORDS)
    before = store.describe()
    if open_saver:  # forbids the quicker journal; the clone is the same
        with store.saver() as saver:
            store.clone_threads({"t": ["u"]})
            assert saver.get_tuple({"configurable": {"thread_id": "u"}}) is not None
    else:
        store.clone_threads({"t": ["u"]})
    assert store.describe() == before
    assert before["journal_mode"] == "wal"
    assert parts(store)["wal", None] == 0
    assert read(store, "u")[0] == expected(WORDS)


def test_failed_clone_is_undone(store: SqliteStore) -> None:
    drive(store, "t", WORDS)
    before = store.row_digests()
    change(
        store,
        "CREATE TRIGGER no BEFORE INSERT ON writes WHEN NEW.thread_id = 'u2' "
        "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END",
    )
    with pytest.raises(BackendError, match="disk full"):
        store.clone_threads({"t": ["u1", "u2", "u3"]})
    assert store.row_digests() == before
    assert store.describe()["journal_mode"] == "wal"


def test_wal_file_and_free_pages_stand_apart(store: SqliteStore) -> None:
    """Deleting fills the WAL and the free list; the file shrinks only by compacting."""
    for thread in ("a", "b"):
        drive(store, thread, [os.urandom(50_000).hex() for _ in range(4)])
    loaded = parts(store)
    assert loaded["wal", None] > 0
    assert loaded["free", None] == 0
    assert loaded["total", None] == loaded["file", None] == store.path.stat().st_size
    with store.saver() as saver:
        saver.delete_thread("a")
    deleted = parts(store)
    assert deleted["file", None] == loaded["file", None]
    assert deleted["free", None] > 0.3 * deleted["file", None]
    assert deleted["heap", None] >= deleted["free", None]
    store.compact()
    compacted = parts(store)
    assert compacted["wal", None] == compacted["free", None] == 0
    assert compacted["file", None] < 0.7 * loaded["file", None]


def test_no_dbstat_tells_the_file_whole(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(store, "t", WORDS)
    monkeypatch.setattr("savermark.backends._sqlite_sql.has_dbstat", lambda connection: False)
    found = parts(store)
    assert {key for key in found if key[0] in ("heap", "index")} == {("heap", None)}
    assert found["heap", None] == found["total", None]


def test_description_tells_what_decides_the_numbers(store: SqliteStore) -> None:
    facts = store.describe()
    assert facts["journal_mode"] == "wal"
    assert facts["synchronous"] == "FULL"
    assert facts["serializer"] == "JsonPlusSerializer"
    keys = {"page_size", "cache_size", "mmap_size", "secure_delete", "wal_autocheckpoint", "sqlite"}
    assert keys <= facts.keys()


def test_names_never_leave_the_folder(tmp_path: Path) -> None:
    names = ["chat[messages.kind=delta]@sqlite", "../up", "a/b", "a_b", "x" * 300]
    paths = {store_path(Location(tmp_path, name)) for name in names}
    assert len(paths) == len(names)
    assert {path.parent for path in paths} == {tmp_path}
    for path in paths:
        path.touch()


def test_create_never_takes_over_a_file(store: SqliteStore, place: Location) -> None:
    drive(store, "t", WORDS)
    with pytest.raises(BackendError, match="exists: remove it"):
        SqliteBackend.create(place)
    assert read(store, "t")[0] == expected(WORDS)


def one_line(caught: pytest.ExceptionInfo[BackendError]) -> str:
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BackendError) as caught:
        SqliteBackend.create(Location(tmp_path / "missing", "store"))
    assert "choose an existing folder that can be written" in one_line(caught)


def test_folder_that_is_read_only(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(BackendError, match="choose an existing folder that can be written"):
            SqliteBackend.create(Location(tmp_path, "store"))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("api", ["sync", "async"])
def test_full_disk(store: SqliteStore, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own limit on pages raises what a full disk raises."""
    setup = "PRAGMA max_page_count=20"
    if api == "sync":
        with pytest.raises(BackendError) as caught, store.saver() as saver:
            saver.conn.execute(setup)
            for turn in range(50):
                put(saver, turn)
    else:
        import asyncio

        async def fill() -> None:
            async with store.asaver() as saver:
                await (await saver.conn.execute(setup)).close()
                for turn in range(50):
                    await saver.aput_writes(CONFIG, [("c", b"x" * 5000)], f"task {turn}")

        with pytest.raises(BackendError) as caught:
            asyncio.run(fill())
    assert "disk full" in one_line(caught)
    assert "free space" in one_line(caught)


CONFIG = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}


def put(saver: object, turn: int) -> None:
    saver.put_writes(CONFIG, [("c", b"x" * 5000)], f"task {turn}")  # type: ignore[attr-defined]


def test_locked_file(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    drive(store, "t", WORDS)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with store._measuring() as connection:
            connection.execute("PRAGMA busy_timeout=0")
        with pytest.raises(BackendError) as caught:
            store.compact()
    finally:
        other.close()
    assert "locked by another process: close that one" in one_line(caught)


@pytest.mark.parametrize("content", [b"This is no database, only text." * 100, b""])
def test_file_that_is_no_checkpoint_database(place: Location, content: bytes) -> None:
    store_path(place).write_bytes(content)
    with pytest.raises(BackendError) as caught:
        SqliteBackend.attach(place)
    assert "not a SQLite database" in one_line(caught) or "no checkpoint tables" in one_line(caught)


def test_thread_ids_with_nul_and_many_of_them(store: SqliteStore) -> None:
    drive(store, "a\0b", WORDS)
    drive(store, "a", WORDS[:1])
    assert {row.thread_id for row in store.storage(["a\0b"]) if row.rows} == {"a\0b"}
    names = [f"n{n}" for n in range(40_000)]  # more than a statement takes by default
    assert sum(row.rows for row in store.storage([*names, "a"])) == sum(
        row.rows for row in store.storage(["a"])
    )
