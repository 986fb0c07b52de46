"""The rows of an `InMemorySaver`: its three dictionaries."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from savermark.errors import UsageError
from savermark.history.image import BlobRow, CheckpointRow, ThreadImage, WriteRow, run_of
from savermark.history.lineage import TASKS, Channels, KeepSet, answer, needs
from savermark.history.memory_txn import MemoryTxn
from savermark.history.rows import BATCH, CHUNK
from savermark.history.wire import holds_snapshot, outline, unsealed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from langgraph.checkpoint.memory import InMemorySaver

_MAINTENANCE = threading.RLock()  # the saver has no lock of its own: this holds off our own jobs


@dataclass
class _Keys:
    """The keys under which one thread's writes and blobs lie, or lay, in order and each once."""

    writes: dict[Any, None] = field(default_factory=dict)
    blobs: dict[Any, None] = field(default_factory=dict)


class MemoryRows:
    """Row access to the dictionaries of a memory saver (see `rows.RowAccess`)."""

    def __init__(self, saver: InMemorySaver) -> None:
        self.saver = saver
        self._keys: dict[str, _Keys] | None = None

    def threads(self) -> Iterator[str]:
        """Every thread with an entry, in the order of their text."""
        yield from sorted(self._index())

    def image(self, thread_id: str | int) -> ThreadImage:
        """All entries of one thread; looks through the keys of all threads."""
        with _MAINTENANCE:  # never in the middle of a transaction of another thread
            self._keys = self._index()
            return self._image(str(thread_id), self._keys.get(str(thread_id)))

    def images(
        self, threads: Sequence[str | int] | None = None, *, batch: int = BATCH, chunk: int = CHUNK
    ) -> Iterator[ThreadImage]:
        """One pass over all keys, then each thread from them; nothing is held in between."""
        keys = self._keys = self._index()
        named = sorted(keys) if threads is None else dict.fromkeys(str(name) for name in threads)
        for name in named:
            with _MAINTENANCE:
                found = self._image(name, keys.get(name))
            yield found

    def keep_set(
        self,
        thread_id: str | int,
        checkpoint_ns: str = "",
        checkpoint_id: str | None = None,
        channels: Channels = "auto",
        *,
        chunk: int = CHUNK,
    ) -> KeepSet:
        """The walk over the dictionary; only what is walked is read."""
        name = str(thread_id)
        thread = self.raw(name)
        held = self.saver.storage.get(thread, {}).get(checkpoint_ns, {})
        target_id = checkpoint_id or max(held, default="")
        if target_id not in held:
            return KeepSet()
        target = self._row(thread, checkpoint_ns, target_id)
        writes = self.saver.writes.get((thread, checkpoint_ns, target.parent_id or ""), {})
        sends = target.parent_id in held and any(row[1] == TASKS for row in writes.values())
        return answer(
            needs(name, target, channels, sends=sends),
            lambda key: self._row(thread, checkpoint_ns, key) if key in held else None,
        )

    def threads_of_runs(self, run_ids: Collection[str]) -> list[str]:
        """One pass over the metadata of all threads."""
        wanted, found = set(run_ids), set()
        for thread, spaces in list(self.saver.storage.items()):
            for held in list(spaces.values()):
                for _, metadata, _ in list(held.values()):
                    if run_of(unsealed(*metadata, self.saver.serde)) in wanted:
                        found.add(str(thread))
        return sorted(found)

    @contextmanager
    def transaction(self, thread_id: str | int) -> Iterator[MemoryTxn]:
        """Changes at once, each with its undo; an exception runs these backwards."""
        with _MAINTENANCE:
            undo: list[Callable[[], object]] = []
            try:
                yield MemoryTxn(self, str(thread_id), undo)
            except BaseException:
                for step in reversed(undo):
                    step()
                raise

    def raw(self, thread: str) -> Any:
        """The key under which the saver holds a thread: an int, if that is what it was given."""
        storage: dict[Any, Any] = self.saver.storage
        if not thread.isdecimal() or str(int(thread)) != thread or not storage.get(int(thread)):
            return thread
        if storage.get(thread):
            raise UsageError(f"thread {thread} exists as text and as a number: rename one")
        return int(thread)

    def _index(self) -> dict[str, _Keys]:
        """The keys of every thread: one pass over all three dictionaries."""
        found: dict[str, _Keys] = {}
        saver = self.saver
        for thread, spaces in list(saver.storage.items()):
            if any(spaces.values()):  # reading an unknown id leaves empty entries behind
                found.setdefault(str(thread), _Keys())
        for key, held in list(saver.writes.items()):
            if held:
                found.setdefault(str(key[0]), _Keys()).writes[key] = None
        for blob in list(saver.blobs):
            found.setdefault(str(blob[0]), _Keys()).blobs[blob] = None
        return found

    def now(self, thread: str) -> ThreadImage:
        """The thread as it is, without a pass over all keys when one was made before.

        Entries of checkpoints that are stored are looked up. Of those whose checkpoint is not,
        only what the last pass saw is known: a run may be about to store their checkpoint.
        """
        raw = self.raw(thread)
        for space, held in list(self.saver.storage.get(raw, {}).items()):
            for name in list(held):
                self.remember(raw, space, name)
        return self._image(thread, self._known(thread))

    def remember(self, thread: Any, space: str, name: str) -> None:
        """Note a stored checkpoint's keys, so that they are found when it is gone."""
        keys = self._known(str(thread))
        keys.writes[(thread, space, name)] = None
        for pair in self._versions(thread, space, name).items():
            keys.blobs[(thread, space, *pair)] = None

    def blob_keys(self, thread: str) -> list[Any]:
        """The keys of the thread's blobs as far as they are known."""
        return list(self._known(thread).blobs)

    def _known(self, thread: str) -> _Keys:
        if self._keys is None:
            self._keys = self._index()
        return self._keys.setdefault(thread, _Keys())

    def _versions(self, thread: Any, space: str, name: str) -> Mapping[str, Any]:
        known = outline(*self.saver.storage[thread][space][name][0], self.saver.serde)
        return known.exact if known else {}

    def _image(self, thread: str, keys: _Keys | None) -> ThreadImage:
        raw, saver = self.raw(thread), self.saver
        keys = keys or _Keys()
        checkpoints = [
            self._row(raw, space, name)
            for space, held in sorted(saver.storage.get(raw, {}).items())
            for name in sorted(held)
        ]
        writes = [
            WriteRow(space, name, task, idx, row[1], row[3], len(row[2][1]))
            for key in keys.writes
            for _, space, name in [key]
            for (task, idx), row in saver.writes.get(key, {}).items()
        ]
        blobs = [
            BlobRow(key[1], key[2], str(key[3]), saver.blobs[key][0], len(saver.blobs[key][1]))
            for key in keys.blobs
            if key in saver.blobs
        ]
        writes.sort(key=lambda row: (row.checkpoint_ns, row.checkpoint_id, *row.order))
        blobs.sort(key=lambda row: row.key)
        return ThreadImage(thread, tuple(checkpoints), tuple(writes), tuple(blobs))

    def _row(self, thread: Any, space: str, name: str) -> CheckpointRow:
        (tag, data), metadata, parent = self.saver.storage[thread][space][name]
        size = len(data) + len(metadata[1])
        known = outline(tag, data, self.saver.serde)
        if known is None:
            return CheckpointRow(space, name, parent or None, {}, v=0, bytes=size, unreadable=tag)
        values = {
            channel: held
            for channel, version in known.exact.items()
            if (held := self.saver.blobs.get((thread, space, channel, version))) is not None
        }
        fields = unsealed(*metadata, self.saver.serde)
        return CheckpointRow(
            space,
            name,
            parent or None,
            known.versions,
            frozenset(channel for channel, held in values.items() if held[0] != "empty"),
            fields if isinstance(fields, dict) else {},
            known.v,
            size,
            snapshots=frozenset(c for c, held in values.items() if holds_snapshot(*held)),
        )
