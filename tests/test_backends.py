"""The contract of a backend, looped over the registry: a new backend needs no new test."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from savermark.backends.base import Capability, Store
from savermark.backends.registry import backend_names, get_backend
from savermark.errors import BackendError, Unsupported, UsageError
from savermark.storage import TABLES, FloorRow
from tiny_graph import adrive, config, drive, expected, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fix_stores import Place
    from savermark.storage import StorageRow

WORDS = ("one", "two", "three", "four")
DRIVERS = {"sync": drive, "async": adrive}
MEASURES: dict[Capability, Callable[[Store], Any]] = {
    Capability.STORAGE: lambda store: (store.storage(), store.floor()),
    Capability.FOOTPRINT: lambda store: store.footprint(),
    Capability.COMPACT: lambda store: store.compact(),
    Capability.COLD: lambda store: store.drop_caches(),
    Capability.CLONE: lambda store: store.clone_threads({"a": ["b"]}),
}


def totals(rows: list[StorageRow]) -> Counter[tuple[str, str | None, str]]:
    """Rows and logical bytes by table and channel."""
    summed: Counter[tuple[str, str | None, str]] = Counter()
    for row in rows:
        summed[row.table, row.channel, "rows"] += row.rows
        summed[row.table, row.channel, "bytes"] += row.logical_bytes
    return +summed


def test_names_are_registered() -> None:
    assert {"memory", "null", "sqlite", "postgres"} <= set(backend_names())
    for name in ("memory", "null", "sqlite"):
        assert get_backend(name).name == name
        assert get_backend(name).title


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'sqlite'"):
        get_backend("sqlit")


def test_fresh_store_is_empty(store: Store, require: Any) -> None:
    with store.saver() as saver:
        assert list(saver.list(config("nobody"))) == []
        assert saver.get_tuple(config("nobody")) is None
    require(Capability.STORAGE)
    assert store.storage() == []
    assert store.floor() == []
    assert store.row_digests() == {}


@pytest.mark.parametrize("api", DRIVERS)
def test_graph_runs_and_reads_back(store: Store, require: Any, api: str) -> None:
    state = DRIVERS[api](store, "t", WORDS[:1])
    require(Capability.KEEPS)
    assert state == expected(WORDS[:1])
    assert DRIVERS[api](store, "t", WORDS[1:]) == expected(WORDS)
    assert read(store, "t")[0] == expected(WORDS)


@pytest.mark.parametrize("api", DRIVERS)
def test_encrypted_serializer(store: Store, require: Any, api: str) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    state = DRIVERS[api](store, "t", WORDS, serde)
    require(Capability.KEEPS, Capability.STORAGE)
    assert state == expected(WORDS)
    assert totals(store.storage())["writes", "said", "bytes"] > 0
    (floor,) = store.floor()
    writes = sum(row.rows for row in store.storage() if row.table == "writes")
    assert floor.distinct_payloads == writes  # every encryption has a nonce of its own


def test_what_is_not_a_capability_is_unsupported(store: Store) -> None:
    for capability in MEASURES.keys() - store.capabilities:
        with pytest.raises(Unsupported):
            MEASURES[capability](store)
    if Capability.STORAGE not in store.capabilities:
        with pytest.raises(Unsupported):
            store.row_digests()


def test_storage_equals_direct_counts(store: Store, require: Any) -> None:
    require(Capability.STORAGE)
    drive(store, "t", WORDS)
    with store.saver() as saver:
        found = list(saver.list(config("t")))
    writes = Counter(channel for each in found for _, channel, _ in each.pending_writes or ())
    rows = totals(store.storage())
    assert rows["checkpoints", None, "rows"] == len(found)
    assert {key[1]: n for key, n in rows.items() if key[0] == "writes" and key[2] == "rows"} == (
        writes
    )


def test_floor_is_each_distinct_write_once(store: Store, require: Any) -> None:
    require(Capability.STORAGE)
    drive(store, "t", [*WORDS, *WORDS])
    with store.saver() as saver:
        found = list(saver.list(config("t")))
        values = {
            saver.serde.dumps_typed(value)
            for each in found
            for _, _, value in each.pending_writes or ()
        }
    size = sum(len(data) for _, data in values)
    assert store.floor() == [FloorRow("t", len(values), size)]
    found_rows = sorted(store.floor(["t", "nobody"]), key=lambda row: row.thread_id)
    assert found_rows == [NOTHING, FloorRow("t", len(values), size)]


NOTHING = FloorRow("nobody", 0, 0)


def test_empty_thread_has_zeros(store: Store, require: Any) -> None:
    require(Capability.STORAGE)
    drive(store, "t", WORDS)
    rows = store.storage(["nobody"])
    assert sorted(row.table for row in rows) == sorted(TABLES)
    assert {(row.thread_id, row.rows, row.logical_bytes) for row in rows} == {("nobody", 0, 0)}
    assert store.floor(["nobody"]) == [NOTHING]
    assert store.storage([]) == []
    assert set(store.row_digests(["nobody", "t"])) == {"nobody", "t"}


def test_sums_over_threads_equal_the_whole(store: Store, require: Any) -> None:
    require(Capability.STORAGE)
    for number, thread in enumerate(("a", "b", "c"), start=1):
        drive(store, thread, WORDS[:number])
    parts: Counter[Any] = Counter()
    for thread in ("a", "b", "c"):
        parts += totals(store.storage([thread]))
    assert parts == totals(store.storage())
    assert parts == totals(store.storage(["c", "b", "a", "a"]))
    floors = [floor for thread in ("a", "b", "c") for floor in store.floor([thread])]
    assert sorted(store.floor(), key=lambda floor: floor.thread_id) == floors


def test_stored_bytes_never_claim_more_than_is_there(store: Store, require: Any) -> None:
    require(Capability.STORAGE, Capability.FOOTPRINT)
    drive(store, "t", WORDS)
    total = {row.component: row.bytes for row in store.footprint() if row.table is None}["total"]
    stored = sum(row.stored_bytes or 0 for row in store.storage())
    assert 0 < stored <= total


def test_footprint_parts_add_up(store: Store, require: Any) -> None:
    require(Capability.FOOTPRINT)
    drive(store, "t", WORDS)
    rows = store.footprint()
    parts = sum(r.bytes for r in rows if r.component in ("payload", "heap", "toast", "index"))
    assert [row.bytes for row in rows if row.component == "total"] == [parts]
    assert all(row.bytes >= 0 for row in rows)


def test_deletion_leaves_other_threads_alone(store: Store, require: Any) -> None:
    require(Capability.STORAGE, Capability.KEEPS)
    for thread in ("a", "b", "c"):
        drive(store, thread, WORDS)
    before = store.row_digests()
    with store.saver() as saver:
        saver.delete_thread("b")
    after = store.row_digests()
    assert after == {thread: before[thread] for thread in ("a", "c")}
    assert {row.thread_id for row in store.storage()} == {"a", "c"}
    assert sum(row.rows for row in store.storage(["b"])) == 0
    drive(store, "a", WORDS[:1])
    assert store.row_digests(["a"])["a"] != before["a"]


def test_clone_reads_back_and_goes_on(store: Store, require: Any) -> None:
    require(Capability.CLONE)
    for api, thread in (("sync", "s"), ("async", "z")):
        DRIVERS[api](store, thread, WORDS)
    rows = {thread: totals(store.storage([thread])) for thread in ("s", "z")}
    targets = {"s": ["x1", "x2", "x3"], "z": ["a1", "y1"]}
    written = store.clone_threads(targets)
    count = {
        thread: sum(n for key, n in rows[thread].items() if key[2] == "rows") for thread in rows
    }
    assert written == 3 * count["s"] + 2 * count["z"]
    for source, clones in targets.items():
        for clone in clones:
            assert totals(store.storage([clone])) == rows[source]
            assert read(store, clone) == read(store, source)
    assert drive(store, "x2", ["more"]) == drive(store, "s", ["more"]) == expected([*WORDS, "more"])
    assert adrive(store, "a1", ["more"]) == adrive(store, "z", ["more"])
    assert len(read(store, "x2")[1]) == len(read(store, "s")[1])
    assert read(store, "x1")[0] == expected(WORDS)  # a clone shares nothing with its siblings


def test_clone_refuses_what_is_not_clear(store: Store, require: Any) -> None:
    require(Capability.CLONE)
    drive(store, "s", WORDS)
    drive(store, "used", WORDS[:1])
    before = store.row_digests()
    for sources in ({"s": ["new", "used"]}, {"s": ["s"]}, {"s": ["new", "new"]}):
        with pytest.raises(BackendError):
            store.clone_threads(sources)
    assert store.row_digests() == before
    assert store.clone_threads({}) == 0
    assert store.clone_threads({"s": []}) == 0


def test_attach_sees_what_create_made(store: Store, place: Place, require: Any) -> None:
    require(Capability.STORAGE)
    drive(store, "t", WORDS)
    digests = store.row_digests()
    store.close()
    second = place.backend.attach(place.location)
    try:
        assert second.row_digests() == digests
        assert read(second, "t")[0] == expected(WORDS)
    finally:
        second.close()


def test_destroy_leaves_nothing(place: Place, tmp_path: Path) -> None:
    store = place.backend.create(place.location)
    drive(store, "t", WORDS)
    store.destroy()
    assert list(tmp_path.iterdir()) == []
    again = place.backend.create(place.location)
    try:
        if Capability.STORAGE in again.capabilities:
            assert again.storage() == []
    finally:
        again.destroy()


def test_attach_to_nothing_is_one_line(place: Place) -> None:
    if Capability.STORAGE not in place.backend.store_type.capabilities:
        pytest.skip("holds nothing to attach to")
    with pytest.raises((BackendError, Unsupported)) as caught:
        place.backend.attach(place.other("never-made"))
    assert "\n" not in str(caught.value)


def test_compact_gives_bytes_back(store: Store, require: Any) -> None:
    require(Capability.COMPACT, Capability.FOOTPRINT)
    chance = random.Random(7)
    for thread in ("a", "b"):
        drive(store, thread, [chance.randbytes(40_000).hex() for _ in range(3)])

    def total() -> int:
        return next(row.bytes for row in store.footprint() if row.component == "total")

    loaded = total()
    with store.saver() as saver:
        saver.delete_thread("a")
    deleted = total()
    store.compact()
    assert total() < 0.8 * loaded
    assert deleted > 0.8 * loaded  # deleting alone gives nothing back
    assert len(store.storage(["b"])) > 0


def test_settled_and_cold_store_reads_the_same(store: Store, require: Any) -> None:
    require(Capability.COLD, Capability.STORAGE)
    drive(store, "t", WORDS)
    digests = store.row_digests()
    store.settle()
    store.drop_caches()
    assert store.row_digests() == digests
    assert read(store, "t")[0] == expected(WORDS)


def test_description_is_plain_and_without_secrets(store: Store, place: Place) -> None:
    drive(store, "t", WORDS[:1])
    text = json.dumps(store.describe())
    assert "langgraph-checkpoint" in text
    assert str(place.location.folder) not in text
    assert place.location.dsn is None or place.location.dsn not in text
    assert "password" not in text


def test_two_stores_do_not_see_each_other(store: Store, place: Place, require: Any) -> None:
    require(Capability.STORAGE)
    drive(store, "t", WORDS)
    second = place.backend.create(place.other("a second one"))
    try:
        assert second.storage() == []
        drive(second, "u", WORDS[:1])
        assert {row.thread_id for row in store.storage()} == {"t"}
    finally:
        second.destroy()


def test_no_thread_reads_another_thread(store: Store, require: Any) -> None:
    """Ids that look alike stay apart: quotes, wildcards, unicode, a prefix of another."""
    require(Capability.STORAGE)
    ids = ["t", "t1", "T", "t%", "t_", "it's", 'q"q', "ü", "😀"]
    for number, thread in enumerate(ids):
        drive(store, thread, [f"word {number}"])
    for number, thread in enumerate(ids):
        assert read(store, thread)[0] == expected([f"word {number}"])
        assert {row.thread_id for row in store.storage([thread]) if row.rows} == {thread}
    assert {row.thread_id for row in store.storage()} == set(ids)
