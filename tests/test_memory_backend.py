"""What is the memory backend's own: entries and not keys, empty blobs, one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from savermark.backends.base import Capability, Location
from savermark.backends.memory import MemoryBackend, MemoryStore
from savermark.errors import BackendError, Unsupported
from tiny_graph import config, drive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    made = MemoryBackend.create(Location(tmp_path, "store"))
    assert isinstance(made, MemoryStore)
    yield made
    made.destroy()


def test_reading_unknown_ids_counts_for_nothing(store: MemoryStore) -> None:
    drive(store, "t", ["one"])
    before = store.storage(), store.row_digests(), store.footprint()
    with store.saver() as saver:
        saver.get_tuple(config("nobody"))
        list(saver.list(config("nobody")))
    assert (store.storage(), store.row_digests(), store.footprint()) == before
    assert store.floor(["nobody"])[0].distinct_payloads == 0
    assert store.clone_threads({"t": ["nobody"]}) > 0


def test_bytes_are_the_typed_lengths(store: MemoryStore) -> None:
    drive(store, "t", ["one", "two"])
    with store.saver() as saver:
        rows = store.storage()
        blobs = saver.blobs
        for channel in ("said", "log", "count"):
            held = [value for key, (_, value) in blobs.items() if key[2] == channel]
            (row,) = [r for r in rows if r.table == "blobs" and r.channel == channel]
            assert (row.rows, row.logical_bytes) == (len(held), sum(map(len, held)))
        checkpoints = saver.storage["t"][""].values()
        size = sum(len(one[1]) + len(two[1]) for one, two, _ in checkpoints)
        (row,) = [r for r in rows if r.table == "checkpoints"]
        assert (row.rows, row.logical_bytes, row.channel) == (len(checkpoints), size, None)
    assert sum(row.bytes for row in store.footprint() if row.component == "payload") == sum(
        row.logical_bytes for row in rows
    )


def test_empty_blobs_are_rows(store: MemoryStore) -> None:
    """A delta channel leaves an `empty` entry on each update without a snapshot."""
    drive(store, "t", ["one"])
    (row,) = [r for r in store.storage() if r.table == "blobs" and r.channel == "said"]
    assert row.rows == 2
    assert row.logical_bytes == 0


def test_clone_has_the_digest_of_its_source(store: MemoryStore) -> None:
    drive(store, "t", ["one"])
    store.clone_threads({"t": ["u", "v"]})
    assert len(set(store.row_digests().values())) == 1
    with store.saver() as saver:
        saver.delete_thread("t")
    assert {row.thread_id for row in store.storage()} == {"u", "v"}


def test_it_says_what_it_cannot_do(store: MemoryStore, tmp_path: Path) -> None:
    assert Capability.COLD not in store.capabilities
    with pytest.raises(Unsupported, match="nothing to compact"):
        store.compact()
    with pytest.raises(Unsupported, match="only copy"):
        store.drop_caches()
    with pytest.raises(Unsupported, match="not in this process"):
        MemoryBackend.attach(Location(tmp_path, "elsewhere"))
    with pytest.raises(BackendError, match="exists"):
        MemoryBackend.create(store.location)
