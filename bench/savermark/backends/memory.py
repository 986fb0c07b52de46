"""Backend `memory`: LangGraph's `InMemorySaver`. It lives and dies with its process."""

from __future__ import annotations

import platform
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from langgraph.checkpoint.memory import InMemorySaver

from savermark.backends.base import Backend, Capability, Location, Store
from savermark.backends.shared import (
    ThreadDigests,
    check_targets,
    floor_rows,
    versions,
    with_zero_rows,
)
from savermark.errors import BackendError, Unsupported
from savermark.storage import TABLES, FootprintRow, StorageRow, Table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.storage import FloorRow

_Group = tuple[str, str, Table, str | None]


class MemoryStore(Store):
    """The saver's three dictionaries, shared by every saver this store hands out."""

    capabilities = frozenset(
        {Capability.STORAGE, Capability.FOOTPRINT, Capability.CLONE, Capability.KEEPS}
    )

    def __init__(self, location: Location, held: InMemorySaver) -> None:
        self.location = location
        self._held = held
        self._serializer = type(held.serde).__name__

    def _saver(self, serde: SerializerProtocol | None) -> InMemorySaver:
        saver = InMemorySaver(serde=serde)
        saver.storage, saver.writes, saver.blobs = (
            self._held.storage,
            self._held.writes,
            self._held.blobs,
        )
        self._serializer = type(saver.serde).__name__
        return saver

    @contextmanager
    def saver(self, serde: SerializerProtocol | None = None) -> Iterator[BaseCheckpointSaver[Any]]:
        """An `InMemorySaver` over this store's dictionaries."""
        yield self._saver(serde)

    @asynccontextmanager
    async def asaver(
        self, serde: SerializerProtocol | None = None
    ) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        """The same saver: it carries both apis."""
        yield self._saver(serde)

    def _entries(self) -> Iterator[tuple[_Group, int]]:
        """Every entry with its payload bytes.

        Entries are counted, not keys: reading an unknown id leaves empty keys behind.
        """
        for thread, spaces in self._held.storage.items():
            for space, checkpoints in spaces.items():
                for checkpoint, metadata, _ in checkpoints.values():
                    size = len(checkpoint[1]) + len(metadata[1])
                    yield (thread, space, "checkpoints", None), size
        for (thread, space, channel, _), (_, value) in self._held.blobs.items():
            yield (thread, space, "blobs", channel), len(value)
        for (thread, space, _), items in self._held.writes.items():
            for _, channel, (_, value), _ in items.values():
                yield (thread, space, "writes", channel), len(value)

    def storage(self, threads: Sequence[str] | None = None) -> list[StorageRow]:
        """Counts in one pass over the dictionaries; `empty` blobs are rows of 0 bytes."""
        wanted = None if threads is None else set(threads)
        rows: Counter[_Group] = Counter()
        sizes: Counter[_Group] = Counter()
        for group, size in self._entries():
            if wanted is None or group[0] in wanted:
                rows[group] += 1
                sizes[group] += size
        found = [
            StorageRow(*group, rows=count, logical_bytes=sizes[group], stored_bytes=sizes[group])
            for group, count in rows.items()
        ]
        return with_zero_rows(found, threads)

    def floor(self, threads: Sequence[str] | None = None) -> list[FloorRow]:
        """The distinct write values of each thread."""
        wanted = None if threads is None else set(threads)
        writes = sorted(
            (key for key in self._held.writes if wanted is None or key[0] in wanted),
            key=lambda key: key[0],
        )
        values = (
            (key[0], tag, value)
            for key in writes
            for _, _, (tag, value), _ in self._held.writes[key].values()
        )
        holders = [thread for thread, spaces in self._held.storage.items() if any(spaces.values())]
        return floor_rows(values, holders, threads)

    def footprint(self) -> list[FootprintRow]:
        """Serialized bytes held, by table; Python's own overhead is in the process's peak RSS."""
        sizes: Counter[Table] = Counter()
        for group, size in self._entries():
            sizes[group[2]] += size
        parts = [FootprintRow("payload", table, sizes[table]) for table in TABLES]
        return [*parts, FootprintRow("total", None, sizes.total())]

    def row_digests(self, threads: Sequence[str] | None = None) -> dict[str, str]:
        """SHA-256 over every entry in key order."""
        held = self._held
        wanted = None if threads is None else set(threads)

        def kept(keys: Iterable[Any]) -> list[Any]:
            return sorted(key for key in keys if wanted is None or key[0] in wanted)

        digests = ThreadDigests()
        digests.feed(
            "checkpoints",
            (
                (thread, space, key, *checkpoint, *metadata, parent)
                for thread, space in kept((t, s) for t in held.storage for s in held.storage[t])
                for key, (checkpoint, metadata, parent) in sorted(
                    held.storage[thread][space].items()
                )
            ),
        )
        digests.feed("blobs", ((*key, *held.blobs[key]) for key in kept(held.blobs)))
        digests.feed(
            "writes",
            (
                (*key, task, index, path, channel, *value)
                for key in kept(held.writes)
                for (task, index), (_, channel, value, path) in sorted(held.writes[key].items())
            ),
        )
        return digests.result(threads)

    def compact(self) -> None:
        """Unsupported: deleting from a dictionary gives the space back at once."""
        raise Unsupported("memory has nothing to compact: deleted entries are gone at once")

    def settle(self) -> None:
        """Nothing is outstanding in memory."""

    def drop_caches(self) -> None:
        """Unsupported: there is no copy but the cached one."""
        raise Unsupported("memory has no caches to drop: it holds the only copy")

    def clone_threads(self, sources: Mapping[str, Sequence[str]]) -> int:
        """Copies dictionary entries; the values are shared, as they are never changed in place."""
        pairs = check_targets(sources)
        used = {row.thread_id for row in self.storage()}
        for target, source in pairs:
            if target in used:
                raise BackendError(f"clone target {target!r} holds rows: choose an unused id")
            if source not in used:
                raise BackendError(f"clone source {source!r} holds no rows: drive it first")
        held = self._held
        blobs = {source: [k for k in held.blobs if k[0] == source] for source in sources}
        writes = {source: [k for k in held.writes if k[0] == source] for source in sources}
        written = 0
        for target, source in pairs:
            for space, checkpoints in held.storage[source].items():
                held.storage[target][space] = dict(checkpoints)
                written += len(checkpoints)
            for blob in blobs[source]:
                held.blobs[(target, *blob[1:])] = held.blobs[blob]
            for write in writes[source]:
                held.writes[(target, *write[1:])] = dict(held.writes[write])
                written += len(held.writes[write])
            written += len(blobs[source])
        return written

    def describe(self) -> dict[str, Any]:
        """Versions and the serializer; there is nothing else to set."""
        return {
            "backend": "memory",
            "saver": "InMemorySaver",
            "serializer": self._serializer,
            "versions": versions("langgraph-checkpoint", "ormsgpack"),
            "python": platform.python_version(),
        }

    def close(self) -> None:
        """The data stays for `MemoryBackend.attach` in this process."""

    def destroy(self) -> None:
        """Forget the data."""
        _HELD.pop(_key(self.location), None)
        for part in (self._held.storage, self._held.writes, self._held.blobs):
            part.clear()


_HELD: dict[tuple[str, str], InMemorySaver] = {}  # what `create` made in this process


def _key(location: Location) -> tuple[str, str]:
    return str(location.folder), location.name


class MemoryBackend(Backend):
    """LangGraph's in-memory saver."""

    name: ClassVar[str] = "memory"
    title: ClassVar[str] = "InMemorySaver: dictionaries in this process, nothing on disk"
    store_type: ClassVar[type[Store]] = MemoryStore

    @classmethod
    def create(cls, location: Location) -> Store:
        """A fresh store; raises `BackendError` where this process already has one."""
        if _key(location) in _HELD:
            raise BackendError(f"memory store {location.name!r} exists: destroy it or rename")
        _HELD[_key(location)] = InMemorySaver()
        return cls.attach(location)

    @classmethod
    def attach(cls, location: Location) -> Store:
        """The store `create` made in this process; another process gets `Unsupported`."""
        held = _HELD.get(_key(location))
        if held is None:
            raise Unsupported(f"memory store {location.name!r} is not in this process: run it here")
        return MemoryStore(location, held)
