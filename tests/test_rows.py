"""Row access: images, streaming and one-thread transactions on every store."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool

from fix_threads import Hand, Kept, at, clone, snapshot
from savermark.backends.base import Location
from savermark.backends.null import NullBackend
from savermark.errors import BackendError, Unsupported, UsageError
from savermark.history.arows import arow_access
from savermark.history.lineage import LineageError, ThreadImage, keep_ids
from savermark.history.postgres import PostgresRows
from savermark.history.rows import ThreadBusy, open_rows, row_access
from savermark.history.sqlite import SqliteRows
from savermark.recording import Recorder, RecordingSaver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def on(*stores: str) -> pytest.MarkDecorator:
    """For a test that some stores have no part in."""
    return pytest.mark.parametrize("kept", stores, indirect=True)


def small(kept: Kept, thread: str | None = None) -> Hand:
    """Three checkpoints, a snapshot, a null, a branch's blob, writes of two tasks."""
    hand = kept.hand(thread).put(
        "c1", None, {"a": snapshot("s"), "n": None, "k": 5}, metadata={"step": 1}
    )
    hand.write("c1", ("a", ["w1"]), ("k", 6), task="t2", path="~b")
    hand.write("c1", ("a", ["w0"]), task="t1", path="~a").write("c1", ("__interrupt__", "?"))
    hand.put("c2", "c1", {"k": 6, "n": None, "big": ["x" * 100]}, moved="a", counts="a")
    return hand.write("c2", ("a", ["w2"])).put("c3", "c2", {"k": 6}, counts="a")


def digest(kept: Kept, thread: str) -> str:
    return kept.store.row_digests([thread])[thread]


# --- images -------------------------------------------------------------------------------------


def test_an_image_counts_what_storage_counts(kept: Kept) -> None:
    hand = small(kept)
    image = kept.rows.image(hand.thread)
    stored = Counter[str]()
    size = Counter[str]()
    for row in kept.store.storage([hand.thread]):
        stored[row.table] += row.rows
        size[row.table] += row.logical_bytes
    assert stored == {
        "checkpoints": len(image.checkpoints),
        "blobs": len(image.blobs),
        "writes": len(image.writes),
    }
    for table in ("checkpoints", "blobs", "writes"):
        assert size[table] == sum(row.bytes for row in getattr(image, table)), table


def test_an_image_has_keys_links_and_names(kept: Kept) -> None:
    hand = small(kept)
    image = kept.rows.image(hand.thread)
    assert [(row.checkpoint_id, row.parent_id) for row in image.checkpoints] == [
        ("c1", None),
        ("c2", "c1"),
        ("c3", "c2"),
    ]
    first, second, third = image.checkpoints
    assert first.snapshots == {"a"} and first.metadata["step"] == 1 and first.v == 4
    assert dict(second.versions) == hand.versions["c2"]
    assert second.counted == {"a"} and "big" in second.stored and "a" not in second.stored
    null_is_seed = kept.name != "postgres"
    assert ("n" in first.stored, "n" in first.nulls) == (null_is_seed, not null_is_seed)
    assert ("n" in third.stored) == (kept.name == "memory")  # at the version of c2
    assert first.markers == ({"a"} if kept.name == "postgres" else set())
    assert [(w.task_path, w.task_id, w.idx, w.channel) for w in image.own_writes["", "c1"]] == [
        ("", "task", -3, "__interrupt__"),
        ("~a", "t1", 0, "a"),
        ("~b", "t2", 0, "a"),
        ("~b", "t2", 1, "k"),
    ]
    assert list(image.writes) == sorted(
        image.writes, key=lambda w: (w.checkpoint_ns, w.checkpoint_id, *w.order)
    )


def test_an_unknown_thread_is_empty(kept: Kept) -> None:
    assert kept.rows.image("nobody-at-all") == ThreadImage("nobody-at-all")
    assert "nobody-at-all" not in set(kept.rows.threads())


@pytest.mark.parametrize(("batch", "chunk"), [(64, 10_000), (1, 10_000), (2, 3), (3, 1)])
def test_streaming_gives_what_one_by_one_gives(kept: Kept, batch: int, chunk: int) -> None:
    hands = [small(kept) for _ in range(4)]
    names = [hand.thread for hand in hands]
    each = [kept.rows.image(name) for name in names]
    found = list(kept.rows.images(batch=batch, chunk=chunk))
    order = [image.thread_id for image in found]
    assert order == list(kept.rows.threads()) and len(order) == len(set(order))
    assert [image for image in found if image.thread_id in names] == sorted(
        each, key=lambda image: order.index(image.thread_id)
    )
    asked = [names[2], "nobody", names[0], names[2]]
    some = list(kept.rows.images(asked, batch=batch, chunk=chunk))
    assert some == [each[2], ThreadImage("nobody"), each[0]]
    assert list(kept.rows.images([])) == []


def test_threads_with_orphans_alone_are_found(kept: Kept) -> None:
    """T23: rows whose checkpoint is gone keep their thread in sight."""
    hand = small(kept)
    with kept.rows.transaction(hand.thread) as txn:
        txn.delete_checkpoints(row.key for row in txn.image().checkpoints)
        inside = txn.image()
    image = kept.rows.image(hand.thread)
    assert image == inside and not image.checkpoints
    assert len(image.writes) == 5 and len(image.blobs) == {"sqlite": 0}.get(
        kept.name, len(image.blobs)
    )
    assert hand.thread in set(kept.rows.threads())
    assert hand.thread in {image.thread_id for image in kept.rows.images(batch=2)}


def test_the_consumer_may_write_between_images(kept: Kept) -> None:
    names = [small(kept).thread for _ in range(3)]
    for image in kept.rows.images(names, batch=1):
        kept.hand(image.thread_id).put("c9")
        with kept.rows.transaction(image.thread_id) as txn:
            assert txn.delete_checkpoints([("", "c9")]) == 1
        assert kept.saver.get_tuple(at(image.thread_id, "c3")) is not None


@on("sqlite", "postgres")
def test_statements_do_not_grow_with_threads(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some for each batch; none for a thread."""
    names = [small(kept).thread for _ in range(6)]
    few, many = (statements(kept, monkeypatch, part) for part in (names[:2], names))
    assert few == many <= 8


def statements(kept: Kept, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> int:
    count = 0

    def counted(*_: Any, **__: Any) -> None:
        nonlocal count
        count += 1

    rows: Any = kept.rows
    list(kept.rows.images(names[:1]))  # looks the columns up once
    if kept.name == "sqlite":
        rows.connection.set_trace_callback(counted)
        list(kept.rows.images(names))
        rows.connection.set_trace_callback(None)
        return count
    original = psycopg.Cursor.execute
    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", lambda *a, **k: counted() or original(*a, **k))
        list(kept.rows.images(names))
    return count


def test_a_thread_id_may_be_a_number(kept: Kept) -> None:
    number = 7_000_000 + len(kept.name)
    small(kept, str(number))
    assert kept.rows.image(number) == kept.rows.image(str(number))
    assert len(kept.rows.image(number).checkpoints) == 3
    assert [image.thread_id for image in kept.rows.images([number])] == [str(number)]
    with kept.rows.transaction(number) as txn:
        assert txn.thread_id == str(number) and txn.image().checkpoints
        txn.delete_all()


def test_memory_reads_a_thread_stored_under_a_number() -> None:
    saver = InMemorySaver()
    Hand(saver, 7).put("c1", None, {"a": [1]}).write("c1", ("a", 1))  # type: ignore[arg-type]
    rows = row_access(saver)
    assert list(rows.threads()) == ["7"]
    assert rows.image("7").rows == 3
    with rows.transaction(7) as txn:
        assert txn.delete_all() == {"checkpoints": 1, "blobs": 1, "writes": 1}
    assert list(rows.threads()) == [] and not saver.blobs
    Hand(saver, 7).put("c1")  # type: ignore[arg-type]
    Hand(saver, "7").put("c1")
    with pytest.raises(UsageError, match="as text and as a number"):
        rows.image("7")


def test_reading_memory_leaves_no_empty_entries() -> None:
    """T36."""
    saver = InMemorySaver()
    Hand(saver, "t").put("c1")
    rows = row_access(saver)
    rows.image("other")
    rows.keep_set("other")
    list(rows.images(["more"]))
    with rows.transaction("none") as txn:
        txn.delete_writes_of([("", "c1")])
        assert txn.image().rows == 0
    assert set(saver.storage) == {"t"} and not saver.writes


# --- transactions -------------------------------------------------------------------------------


def test_each_delete_takes_its_rows_and_no_others(kept: Kept) -> None:
    hand = small(kept)
    before = kept.rows.image(hand.thread)
    with kept.rows.transaction(hand.thread) as txn:
        assert txn.delete_checkpoints([("", "c2"), ("", "zz"), ("no", "c1")], chunk=1) == 1
        assert txn.delete_writes([("", "c1", "t2", 1), ("", "c1", "t2", 9)], chunk=1) == 1
        assert txn.delete_writes_of([("", "c2"), ("", "c3"), ("", "zz")], chunk=1) == 1
        blobs = [row.key for row in txn.image().blobs if row.channel == "big"]
        assert txn.delete_blobs([*blobs, ("", "big", "no")], chunk=1) == len(blobs)
        assert len(blobs) == (0 if kept.name == "sqlite" else 1)
        inside = txn.image()
    after = kept.rows.image(hand.thread)
    assert after == inside
    assert after.checkpoints == tuple(
        row
        if kept.name == "sqlite" or row.checkpoint_id != "c3"
        else replace(row, stored=row.stored - {"big"})
        for row in before.checkpoints
        if row.checkpoint_id != "c2"
    )
    assert [row.key for row in after.writes] == [
        row.key
        for row in before.writes
        if row.checkpoint_id == "c1" and (row.task_id, row.idx) != ("t2", 1)
    ]
    assert set(before.blobs) - set(after.blobs) == {b for b in before.blobs if b.channel == "big"}


def test_namespaces_and_threads_are_kept_apart(kept: Kept) -> None:
    hand, other = small(kept), small(kept)
    Hand(kept.saver, hand.thread, "sub").put("c1", None, {"a": ["x"]}).write("c1", ("a", 1))
    inner = kept.rows.image(hand.thread).spaces["sub"]
    untouched = digest(kept, other.thread)
    with kept.rows.transaction(hand.thread) as txn:
        root = [row.key for row in txn.image().checkpoints if not row.checkpoint_ns]
        assert txn.delete_checkpoints(root) == 3
        assert txn.delete_writes_of(root) == 5
    left = kept.rows.image(hand.thread)
    assert left.spaces == {"sub": inner} and len(left.writes) == 1
    assert digest(kept, other.thread) == untouched


def test_deleting_all_leaves_nothing(kept: Kept) -> None:
    hand = small(kept)
    image = kept.rows.image(hand.thread)
    with kept.rows.transaction(hand.thread) as txn:
        counts = txn.delete_all()
    assert counts == {
        "checkpoints": 3,
        "blobs": len(image.blobs),
        "writes": len(image.writes),
    }
    assert kept.rows.image(hand.thread).rows == 0
    assert kept.saver.get_tuple(at(hand.thread)) is None
    with kept.rows.transaction(hand.thread) as txn:
        assert set(txn.delete_all().values()) == {0}


def test_an_exception_undoes_everything(kept: Kept) -> None:
    hand = small(kept)
    before, image = digest(kept, hand.thread), kept.rows.image(hand.thread)
    target = f"{hand.thread}-copy"
    with pytest.raises(RuntimeError, match="half way"), kept.rows.transaction(hand.thread) as txn:
        txn.copy_rows(target)
        txn.reparent("", "c3", "c1")
        txn.update_metadata("", "c1", {"x": 1})
        txn.store_value("", "c2", "a", kept.saver.serde.dumps_typed(snapshot("v")))
        txn.move_writes("", "c2", "c3")
        txn.delete_writes([("", "c1", "t2", 1)])
        txn.delete_all()
        txn.beside(target).delete_checkpoints([("", "c1")])
        raise RuntimeError("half way")
    assert digest(kept, hand.thread) == before
    assert kept.rows.image(hand.thread) == image
    assert kept.rows.image(target).rows == 0


def test_a_new_parent_is_what_the_saver_reads(kept: Kept) -> None:
    hand = small(kept)
    with kept.rows.transaction(hand.thread) as txn:
        assert txn.reparent("", "c3", "c1") == 1
        assert txn.reparent("", "c2", None) == 1
        assert txn.reparent("", "zz", "c1") == 0
    third, second = (kept.saver.get_tuple(at(hand.thread, name)) for name in ("c3", "c2"))
    assert third is not None and third.parent_config is not None
    assert third.parent_config["configurable"]["checkpoint_id"] == "c1"
    assert second is not None and second.parent_config is None


def test_moved_writes_read_back_on_the_other_checkpoint(kept: Kept) -> None:
    hand = small(kept)
    source = kept.saver.get_tuple(at(hand.thread, "c1"))
    assert source is not None
    with kept.rows.transaction(hand.thread) as txn:
        assert txn.move_writes("", "c1", "c3") == 4
        assert txn.move_writes("", "c1", "c3") == 0
        hand_over = txn.image().own_writes
        assert ("", "c1") not in hand_over and len(hand_over["", "c3"]) == 4
    target = kept.saver.get_tuple(at(hand.thread, "c3"))
    assert target is not None and target.pending_writes == source.pending_writes
    hand.write("c1", ("a", ["again"]), task="t1")
    with (
        pytest.raises(UsageError, match="owns the write"),
        kept.rows.transaction(hand.thread) as txn,
    ):
        txn.move_writes("", "c1", "c3")


def test_a_stored_value_reads_back_as_the_saver_would_have_put_it(kept: Kept) -> None:
    hand = kept.hand().put("c1", None, {"a": snapshot("s"), "k": {"deep": [1, None]}})
    hand.write("c1", ("a", ["w"])).put(
        "c2", "c1", {"k": {"deep": [1, None]}}, moved="a", counts="a"
    )
    hand.put("c3", "c2", {"k": 1}, moved="a", counts="a")
    before = kept.saver.get_tuple(at(hand.thread, "c2"))
    value = snapshot("s", "w", {"x": 1.5}, None, "ä" * 300)
    with kept.rows.transaction(hand.thread) as txn:
        txn.store_value("", "c2", "a", kept.saver.serde.dumps_typed(value))
        assert {"a"} <= txn.image().checkpoints[1].snapshots
    after = kept.saver.get_tuple(at(hand.thread, "c2"))
    assert before is not None and after is not None
    assert after.checkpoint["channel_values"] == {**before.checkpoint["channel_values"], "a": value}
    assert {**after.checkpoint, "channel_values": 0} == {**before.checkpoint, "channel_values": 0}
    assert (after.metadata, after.parent_config) == (before.metadata, before.parent_config)
    assert kept.rows.keep_set(hand.thread) == {"c2", "c3"}
    walked = kept.saver.get_delta_channel_history(config=at(hand.thread, "c3"), channels=["a"])
    assert walked["a"] == {"writes": [], "seed": value}
    with kept.rows.transaction(hand.thread) as txn:  # once more over the first
        txn.store_value("", "c2", "a", kept.saver.serde.dumps_typed(snapshot("other")))
    again = kept.saver.get_tuple(at(hand.thread, "c2"))
    assert again is not None and again.checkpoint["channel_values"]["a"] == snapshot("other")


@pytest.mark.parametrize(("name", "channel"), [("zz", "a"), ("c2", "unknown")])
def test_a_value_needs_a_version_to_stand_at(kept: Kept, name: str, channel: str) -> None:
    hand = small(kept)
    before = digest(kept, hand.thread)
    value = kept.saver.serde.dumps_typed(snapshot())
    with pytest.raises(UsageError, match="no version"), kept.rows.transaction(hand.thread) as txn:
        txn.store_value("", name, channel, value)
    assert digest(kept, hand.thread) == before


def test_new_metadata_is_what_the_saver_filters_by(kept: Kept) -> None:
    hand = small(kept)
    told = {"step": 9, "run_id": hand.thread, "nested": {"ä": [1, None, "x"]}}
    with kept.rows.transaction(hand.thread) as txn:
        assert txn.update_metadata("", "c2", told) == 1
        assert txn.update_metadata("", "zz", told) == 0
    found = list(kept.saver.list(at(hand.thread), filter={"run_id": hand.thread}))
    assert [(row.config["configurable"]["checkpoint_id"], row.metadata) for row in found] == [
        ("c2", told)
    ]
    assert kept.rows.image(hand.thread).checkpoints[1].metadata == told


def test_a_full_copy_is_the_same_thread(kept: Kept) -> None:
    hand = small(kept)
    Hand(kept.saver, hand.thread, "sub").put("c1", None, {"a": ["x"]}).write("c1", ("a", 1))
    kept.hand(hand.thread).write("orphan", ("a", 1))
    copied = clone(kept, hand.thread)
    assert digest(kept, copied) == digest(kept, hand.thread)
    assert replace(kept.rows.image(copied), thread_id=hand.thread) == kept.rows.image(hand.thread)
    read = [kept.saver.get_tuple(at(name, "c2")) for name in (hand.thread, copied)]
    assert read[0] is not None and read[1] is not None
    assert read[0].checkpoint == read[1].checkpoint
    assert read[0].pending_writes == read[1].pending_writes


def test_a_chosen_copy_has_no_loose_ends(kept: Kept) -> None:
    hand = small(kept)
    inner = Hand(kept.saver, hand.thread, "sub").put("c2", None, {"a": ["x"]})
    inner.put("c3", "c2", {"a": ["y"]})
    keys = [("", "c2"), ("", "c3"), ("sub", "c3")]
    target = f"{hand.thread}-part"
    with kept.rows.transaction(hand.thread) as txn:
        expected = txn.image().cut(keys)
        assert txn.copy_rows(target, keys) == expected.rows
        assert txn.beside(target).image() == replace(expected, thread_id=target)
    assert kept.rows.image(target) == replace(expected, thread_id=target)
    assert kept.saver.get_tuple(at(target, "c2")) is not None


def test_a_copy_refuses_a_thread_in_use(kept: Kept) -> None:
    hand, other = small(kept), small(kept)
    before = digest(kept, other.thread)
    for keys in (None, [("", "c1")]):
        with (
            pytest.raises(UsageError, match="holds rows"),
            kept.rows.transaction(hand.thread) as txn,
        ):
            txn.copy_rows(other.thread, keys)
    assert digest(kept, other.thread) == before


@on("sqlite", "postgres")  # the lock of memory may be taken again
def test_nesting_is_refused_and_does_not_hang(kept: Kept) -> None:
    hand = small(kept)
    with kept.rows.transaction(hand.thread) as txn:
        for use in (
            lambda: kept.rows.image(hand.thread),
            lambda: kept.rows.keep_set(hand.thread),
            lambda: kept.rows.transaction(hand.thread).__enter__(),
        ):
            with pytest.raises(BackendError, match="transaction of this thread is open"):
                use()
        assert txn.image().rows


@on("sqlite", "postgres")
def test_a_saver_whose_list_is_half_read_is_in_use(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T37, where the saver itself would wait for ever."""
    monkeypatch.setattr("savermark.history.turn.PATIENCE", 0.05)
    hand = small(kept)
    listed = kept.saver.list(at(hand.thread))
    next(listed)
    with pytest.raises(ThreadBusy, match="to the end"):
        kept.rows.image(hand.thread)
    assert len(list(listed)) == 2
    assert kept.rows.image(hand.thread).rows


# --- SQLite -------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "x.db", check_same_thread=False)) as connection:
        SqliteSaver(connection).setup()
        yield connection


def in_file(connection: sqlite3.Connection) -> Hand:
    return small(Kept("sqlite", None, SqliteSaver(connection), SqliteRows(connection)), "t")  # type: ignore[arg-type]


def test_sqlite_takes_a_read_only_connection(file: sqlite3.Connection, tmp_path: Path) -> None:
    in_file(file)
    address = f"file:{tmp_path / 'x.db'}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        rows = SqliteRows(connection)
        assert rows.keep_set("t") == keep_ids(rows.image("t"), "", "c3")
        assert rows.image("t").rows == 8
        with pytest.raises(BackendError, match="readonly"), rows.transaction("t") as txn:
            txn.delete_all()
        assert rows.image("t").rows == 8


def test_sqlite_reads_files_older_than_task_paths(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "new.db", check_same_thread=False)) as new:
        in_file(new)
        checkpoints = new.execute("SELECT * FROM checkpoints").fetchall()
        writes = new.execute(
            "SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value "
            "FROM writes"
        ).fetchall()
    with closing(sqlite3.connect(tmp_path / "old.db")) as old:
        old.executescript(
            "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, "
            "parent_checkpoint_id, type, checkpoint, metadata, "
            "PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));"
            "CREATE TABLE writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, "
            "type, value, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));"
        )
        old.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", checkpoints)
        old.executemany("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", writes)
        old.execute("UPDATE checkpoints SET metadata = CAST(metadata AS TEXT)")
        old.commit()
        rows = SqliteRows(old)
        image = rows.image("t")
        assert {write.task_path for write in image.writes} == {""} and image.rows == 8
        assert image.checkpoints[1].counted == {"a"}
        assert [found.rows for found in rows.images()] == [8]
        with rows.transaction("t") as txn:
            assert txn.copy_rows("u") == 8
            assert txn.delete_writes_of([("", "c1")]) == 4


def test_sqlite_says_when_another_writes(file: sqlite3.Connection, tmp_path: Path) -> None:
    in_file(file)
    with closing(sqlite3.connect(tmp_path / "x.db", timeout=0)) as other:
        rows = SqliteRows(other)
        with SqliteRows(file).transaction("t"), pytest.raises(ThreadBusy, match="try again"):
            rows.transaction("t").__enter__()
        with rows.transaction("t") as txn:
            assert txn.delete_checkpoints([("", "c3")]) == 1


def test_sqlite_refuses_a_connection_in_a_transaction(file: sqlite3.Connection) -> None:
    in_file(file)
    file.execute("DELETE FROM checkpoints WHERE checkpoint_id = 'c3'")
    rows = SqliteRows(file)
    assert len(rows.image("t").checkpoints) == 2  # reads as that transaction sees it
    with pytest.raises(BackendError, match="commit it first"):
        rows.transaction("t").__enter__()
    file.rollback()
    assert len(rows.image("t").checkpoints) == 3


def test_sqlite_rows_that_cannot_be_read_are_kept_in_sight(file: sqlite3.Connection) -> None:
    in_file(file)
    for tag in ("pickle", "msgpack+aes", "own"):
        file.execute("UPDATE checkpoints SET type = ? WHERE checkpoint_id = 'c1'", (tag,))
        file.commit()
        rows = SqliteRows(file)
        first = rows.image("t").checkpoints[0]
        assert (first.unreadable, first.bytes > 0) == (tag, True)
        with pytest.raises(LineageError, match="serializer that wrote it"):
            rows.keep_set("t", "", "c1")
        with pytest.raises(LineageError, match="serializer that wrote it"):
            rows.keep_set("t", "", "c3")
        assert rows.keep_set("t", "", "c3", []) == {"c3"}
    file.execute("UPDATE checkpoints SET type = 'msgpack', checkpoint = x'c1', metadata = '{'")
    assert [row.unreadable for row in rows.image("t").checkpoints] == ["msgpack"] * 3


def test_sqlite_reads_checkpoints_stored_as_json(file: sqlite3.Connection) -> None:
    in_file(file)
    text = '{"v": 1, "channel_versions": {"a": 3}, "channel_values": {"a": null}}'
    file.execute(
        "UPDATE checkpoints SET type = 'json', checkpoint = ? WHERE checkpoint_id = 'c1'", (text,)
    )
    first = SqliteRows(file).image("t").checkpoints[0]
    assert (first.v, dict(first.versions), first.stored) == (1, {"a": "3"}, {"a"})
    assert SqliteRows(file).keep_set("t") == {"c1", "c2", "c3"}


# --- Postgres -----------------------------------------------------------------------------------


@pytest.fixture
def others(kept: Kept) -> Iterator[PostgresSaver]:
    """A second session on the same database."""
    with kept.store.saver() as saver:
        assert isinstance(saver, PostgresSaver)
        yield saver


def dsn_of(saver: PostgresSaver) -> str:
    info = saver.conn.info  # type: ignore[union-attr]
    return make_conninfo(info.dsn, password=info.password or None)


@on("postgres")
def test_postgres_holds_off_other_jobs_on_the_thread(kept: Kept, others: PostgresSaver) -> None:
    hand, other = small(kept), small(kept)
    rows, entered = row_access(others), threading.Event()

    def second() -> None:
        with rows.transaction(hand.thread) as txn:
            entered.set()
            assert len(txn.image().checkpoints) == 2  # what the first left

    with kept.rows.transaction(hand.thread) as txn:
        with rows.transaction(other.thread) as free:
            assert free.image().rows
        waiting = threading.Thread(target=second)
        waiting.start()
        assert not entered.wait(0.2)
        txn.delete_checkpoints([("", "c3")])
    waiting.join(20)
    assert entered.is_set()


@on("postgres")
def test_postgres_neither_sees_nor_touches_what_a_run_appends(
    kept: Kept, others: PostgresSaver
) -> None:
    hand = small(kept)
    with kept.rows.transaction(hand.thread) as txn:
        before = txn.image()
        run = Hand(others, hand.thread, versions=hand.versions)
        run.put("c4", "c3", {"a": snapshot("late")}).write("c3", ("a", ["late"]))
        assert txn.image() == before
        txn.delete_checkpoints([("", "c1")])
    after = kept.rows.image(hand.thread)
    assert [row.checkpoint_id for row in after.checkpoints] == ["c2", "c3", "c4"]
    assert after.own_writes["", "c3"] and "a" in after.checkpoints[2].snapshots


@on("postgres")
def test_postgres_says_when_a_run_changed_a_row_meanwhile(
    kept: Kept, others: PostgresSaver
) -> None:
    hand = small(kept)
    before = kept.rows.image(hand.thread)
    with pytest.raises(ThreadBusy), kept.rows.transaction(hand.thread) as txn:
        txn.image()
        others.conn.execute(  # type: ignore[union-attr]
            "UPDATE checkpoints SET metadata = metadata WHERE thread_id = %s", (hand.thread,)
        )
        txn.delete_checkpoints([("", "c1"), ("", "c2")])
    assert kept.rows.image(hand.thread) == before


@on("postgres")
def test_postgres_releases_its_locks(kept: Kept, others: PostgresSaver) -> None:
    hand = small(kept)
    for _ in range(2):
        with pytest.raises(RuntimeError), kept.rows.transaction(hand.thread) as txn:
            txn.beside("another")
            raise RuntimeError
    held = others.conn.execute(  # type: ignore[union-attr]
        "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchone()
    assert held == {"n": 0}


@on("postgres")
def test_postgres_wants_a_connection_of_the_right_kind(kept: Kept, others: PostgresSaver) -> None:
    hand = small(kept)
    dsn = dsn_of(others)
    with psycopg.connect(dsn) as plain:
        rows = PostgresRows(plain)
        assert rows.image(hand.thread).rows  # reading ends its own transaction
        with pytest.raises(BackendError, match="autocommit"):
            rows.transaction(hand.thread).__enter__()
        plain.execute("SELECT 1")
        with pytest.raises(BackendError, match="inside a transaction"):
            rows.image(hand.thread)
        plain.rollback()
    with pytest.raises(BackendError):
        PostgresRows(plain).image(hand.thread)


@on("postgres")
def test_postgres_takes_a_pool_and_a_read_only_session(kept: Kept, others: PostgresSaver) -> None:
    hand = small(kept)
    dsn = dsn_of(others)
    with ConnectionPool(dsn, min_size=1, max_size=2, kwargs={"autocommit": True}) as pool:
        saver = PostgresSaver(pool)  # type: ignore[arg-type]
        rows = row_access(saver)
        assert rows.image(hand.thread) == kept.rows.image(hand.thread)
        with rows.transaction(hand.thread) as txn:
            assert txn.delete_checkpoints([("", "c3")]) == 1
    with psycopg.connect(dsn, autocommit=True) as ro:
        ro.execute("SET default_transaction_read_only = on")
        rows = PostgresRows(ro)
        assert rows.image(hand.thread).rows and rows.keep_set(hand.thread)
        assert hand.thread in set(rows.threads())
        with pytest.raises(BackendError, match="read-only"), rows.transaction(hand.thread) as txn:
            txn.delete_all()


@on("postgres")
def test_postgres_in_pipeline_mode(kept: Kept, others: PostgresSaver) -> None:
    hand = small(kept)
    dsn = dsn_of(others)
    with PostgresSaver.from_conn_string(dsn, pipeline=True) as saver:
        rows = row_access(saver)
        assert rows.image(hand.thread) == kept.rows.image(hand.thread)
        assert rows.keep_set(hand.thread) == kept.rows.keep_set(hand.thread)
        with rows.transaction(hand.thread) as txn:
            assert txn.delete_checkpoints([("", "c3")]) == 1
    assert len(kept.rows.image(hand.thread).checkpoints) == 2


@on("postgres")
def test_postgres_tells_a_marker_without_its_blob(kept: Kept, others: PostgresSaver) -> None:
    hand = small(kept)
    with kept.rows.transaction(hand.thread) as txn:
        txn.delete_blobs(row.key for row in txn.image().blobs if row.channel == "a")
    first = kept.rows.image(hand.thread).checkpoints[0]
    assert first.markers == {"a"} and first.snapshots == set()
    plain = kept.hand().put("c1", None, {"a": True})
    assert kept.rows.image(plain.thread).checkpoints[0].markers == {"a"}


@on("postgres")
def test_postgres_reads_tables_older_than_task_paths(kept: Kept, others: PostgresSaver) -> None:
    hand = small(kept)
    with psycopg.connect(dsn_of(others), autocommit=True) as connection:
        (schema,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            connection.execute(f"CREATE TEMP TABLE {table} (LIKE {schema}.{table})")
            connection.execute(f"INSERT INTO {table} SELECT * FROM {schema}.{table}")
        connection.execute("ALTER TABLE pg_temp.checkpoint_writes DROP COLUMN task_path")
        rows = PostgresRows(connection)
        image = rows.image(hand.thread)
        assert {write.task_path for write in image.writes} == {""}
        assert image.checkpoints == kept.rows.image(hand.thread).checkpoints
        with rows.transaction(hand.thread) as txn:
            assert txn.copy_rows("copy") == image.rows


# --- serializers --------------------------------------------------------------------------------


class Refusing(JsonPlusSerializer):
    """Builds no value at all."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        raise AssertionError("a value was built")


class Reversed:
    """A serializer of an application's own."""

    def __init__(self) -> None:
        self.inner = JsonPlusSerializer()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "reversed", self.inner.dumps_typed([obj])[1][::-1]

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self.inner.loads_typed(("msgpack", data[1][::-1]))[0]


SERIALIZERS = {
    "refusing": Refusing,
    "encrypted": lambda: EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 16),
    "own": Reversed,
}


@pytest.mark.parametrize("kind", SERIALIZERS)
def test_no_value_is_built_and_ciphers_are_known(kept: Kept, kind: str) -> None:
    """T40; the application's own serializer alone may build what only it can read."""
    serde = SERIALIZERS[kind]()
    with kept.store.saver(serde) as saver:
        rows = row_access(saver)
        mine = replace_rows(kept, saver, rows)
        hand = small(mine)
        image = rows.image(hand.thread)
        assert not any(row.unreadable for row in image.checkpoints)
        assert image.checkpoints[1].counted == {"a"} and "big" in image.checkpoints[1].stored
        assert rows.keep_set(hand.thread) == keep_ids(image, "", "c3")
        value = serde.dumps_typed(snapshot("v"))
        with rows.transaction(hand.thread) as txn:
            txn.update_metadata("", "c2", {"step": 3})
            if kind == "own" and kept.name == "sqlite":
                with pytest.raises(UsageError, match="type 'reversed'"):
                    txn.store_value("", "c2", "a", value)
            else:
                txn.store_value("", "c2", "a", value)
        assert rows.image(hand.thread).checkpoints[1].metadata == {"step": 3}
        if kind == "encrypted":
            found = saver.get_tuple(at(hand.thread, "c2"))
            assert found is not None and found.checkpoint["channel_values"]["a"] == snapshot("v")
            assert found.checkpoint["channel_values"]["k"] == 6


def replace_rows(kept: Kept, saver: Any, rows: Any) -> Kept:
    return replace(kept, saver=saver, rows=rows)


def test_encrypted_rows_are_not_read_without_the_key(kept: Kept) -> None:
    with kept.store.saver(SERIALIZERS["encrypted"]()) as saver:
        hand = small(replace_rows(kept, saver, row_access(saver)))
    first = kept.rows.image(hand.thread).checkpoints[0]
    if kept.name == "postgres":  # versions and bare values stay readable there
        assert first.stored == {"a", "k"} and not first.unreadable
    else:
        assert first.unreadable == "msgpack+aes"
        with pytest.raises(LineageError, match="serializer"):
            kept.rows.keep_set(hand.thread)


# --- finding the rows ---------------------------------------------------------------------------


def test_wrapped_savers_and_our_stores(kept: Kept) -> None:
    hand = small(kept)
    wrapped = row_access(RecordingSaver(kept.saver, Recorder()))
    assert wrapped.image(hand.thread) == kept.rows.image(hand.thread)
    with open_rows(kept.store) as rows:
        assert rows.image(hand.thread) == kept.rows.image(hand.thread)


def test_unknown_savers_are_refused(tmp_path: Path) -> None:
    class Foreign(BaseCheckpointSaver[str]):
        pass

    with pytest.raises(Unsupported, match="Foreign"):
        row_access(Foreign())
    with pytest.raises(Unsupported), open_rows(NullBackend.create(Location(tmp_path, "n"))):
        pass


def test_async_savers_reach_the_same_rows(kept: Kept) -> None:
    hand = small(kept)
    image, kept_ids = kept.rows.image(hand.thread), kept.rows.keep_set(hand.thread)

    def shorten(rows: Any) -> int:
        with rows.transaction(hand.thread) as txn:
            return int(txn.delete_checkpoints([("", "c3")]))

    async def ask() -> None:
        async with kept.store.asaver() as saver, arow_access(saver) as rows:
            assert await rows.run(lambda rows: rows.image(hand.thread)) == image
            assert await rows.run(lambda rows: rows.keep_set(hand.thread)) == kept_ids
            assert await rows.run(shorten) == 1
            with pytest.raises(UsageError):
                await rows.run(lambda rows: rows.keep_set(hand.thread, channels="x"))
            assert await saver.aget_tuple(at(hand.thread, "c3")) is None

    asyncio.run(ask())
    gc.collect()  # a connection left open would warn here
    assert len(kept.rows.image(hand.thread).checkpoints) == 2


def test_an_async_database_in_memory() -> None:
    async def ask() -> None:
        async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            checkpoint: Any = {"v": 4, "id": "c1", "ts": "", "channel_values": {}}
            checkpoint |= {"channel_versions": {}, "versions_seen": {}}
            await saver.aput(at("t"), checkpoint, {}, {})
            async with arow_access(saver) as rows:
                assert await rows.run(lambda rows: list(rows.threads())) == ["t"]

                def empty(rows: Any) -> None:
                    with rows.transaction("t") as txn:
                        txn.delete_all()

                await rows.run(empty)
            assert await saver.aget_tuple(at("t")) is None

    asyncio.run(ask())
