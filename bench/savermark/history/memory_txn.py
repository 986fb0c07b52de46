"""One thread of an `InMemorySaver` in one transaction: changes at once, each with its undo."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from savermark.errors import UsageError
from savermark.history.rows import CHUNK, no_version, target_in_use
from savermark.history.wire import outline, sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from savermark.history.image import BlobKey, CheckpointKey, ThreadImage, WriteKey
    from savermark.history.memory import MemoryRows
    from savermark.history.rows import Typed
    from savermark.storage import Table

_ABSENT: Any = object()


class MemoryTxn:
    """One thread of a memory saver, with what undoes each change (see `rows.ThreadTxn`)."""

    def __init__(self, rows: MemoryRows, thread_id: str, undo: list[Callable[[], object]]) -> None:
        self.thread_id = thread_id
        self._rows, self._saver, self._undo = rows, rows.saver, undo
        self._thread = rows.raw(thread_id)

    def image(self) -> ThreadImage:
        """The thread as it is now."""
        return self._rows.now(self.thread_id)

    def delete_checkpoints(self, keys: Iterable[CheckpointKey], *, chunk: int = CHUNK) -> int:
        """Delete these entries of `storage`."""
        spaces, count = self._saver.storage.get(self._thread, {}), 0
        for space, name in keys:
            if name in spaces.get(space, {}):
                self._rows.remember(self._thread, space, name)
                count += self._drop(spaces[space], name)
        return count

    def delete_writes(self, keys: Iterable[WriteKey], *, chunk: int = CHUNK) -> int:
        """Delete these entries of `writes`."""
        return sum(
            self._drop(self._saver.writes.get((self._thread, space, name), {}), (task, idx))
            for space, name, task, idx in keys
        )

    def delete_writes_of(self, keys: Iterable[CheckpointKey], *, chunk: int = CHUNK) -> int:
        """Delete everything in `writes` under these checkpoints."""
        count = 0
        for space, name in keys:
            key = (self._thread, space, name)
            count += len(self._saver.writes.get(key, ()))
            self._drop(self._saver.writes, key)
        return count

    def delete_blobs(self, keys: Iterable[BlobKey], *, chunk: int = CHUNK) -> int:
        """Delete these entries of `blobs`, whatever the type of their version."""
        exact = self._exact()
        return sum(self._drop(self._saver.blobs, exact[key]) for key in keys if key in exact)

    def delete_all(self) -> dict[Table, int]:
        """Delete every entry of the thread."""
        found = self._rows.image(self.thread_id)
        counts: dict[Table, int] = {
            "checkpoints": self.delete_checkpoints(row.key for row in found.checkpoints),
            "blobs": self.delete_blobs(row.key for row in found.blobs),
            "writes": self.delete_writes_of(dict.fromkeys(row.key[:2] for row in found.writes)),
        }
        self._drop(self._saver.storage, self._thread)
        return counts

    def reparent(self, checkpoint_ns: str, child_id: str, parent_id: str | None) -> int:
        """Set the parent of a checkpoint."""
        return self._change(checkpoint_ns, child_id, lambda held: (*held[:2], parent_id))

    def move_writes(self, checkpoint_ns: str, from_id: str, to_id: str) -> int:
        """Store one checkpoint's writes on another one."""
        source = self._saver.writes.get((self._thread, checkpoint_ns, from_id), {})
        target = (self._thread, checkpoint_ns, to_id)
        held = self._saver.writes.get(target, {})
        if clash := source.keys() & held.keys():
            raise UsageError(f"checkpoint {to_id} owns the write {min(clash)} already")
        count = len(source)
        if count:
            self._put(self._saver.writes, target, {**held, **source})
            self._drop(self._saver.writes, (self._thread, checkpoint_ns, from_id))
        return count

    def store_value(
        self, checkpoint_ns: str, checkpoint_id: str, channel: str, value: Typed
    ) -> None:
        """Put the value into `blobs` at the checkpoint's version."""
        held = self._saver.storage.get(self._thread, {}).get(checkpoint_ns, {})
        known = held.get(checkpoint_id) and outline(*held[checkpoint_id][0], self._saver.serde)
        if not known or channel not in known.exact:
            raise no_version(checkpoint_id, channel)
        key = (self._thread, checkpoint_ns, channel, known.exact[channel])
        self._put(self._saver.blobs, key, value)

    def update_metadata(
        self, checkpoint_ns: str, checkpoint_id: str, metadata: Mapping[str, Any]
    ) -> int:
        """Replace a checkpoint's metadata."""
        typed = sealed(metadata, self._saver.serde)
        return self._change(checkpoint_ns, checkpoint_id, lambda held: (held[0], typed, held[2]))

    def copy_rows(
        self, target_thread: str, checkpoints: Collection[CheckpointKey] | None = None
    ) -> int:
        """Copy entries; values are shared, as they are never changed in place."""
        saver, found = self._saver, self._rows.image(self.thread_id)
        if saver.storage.get(target_thread) or self._rows.image(target_thread).rows:
            raise target_in_use(target_thread)
        copied = found if checkpoints is None else found.cut(checkpoints)
        for row in copied.checkpoints:
            held = saver.storage[self._thread][row.checkpoint_ns][row.checkpoint_id]
            space = saver.storage[target_thread][row.checkpoint_ns]
            self._put(space, row.checkpoint_id, (*held[:2], row.parent_id))
        for key in dict.fromkeys(row.key[:2] for row in copied.writes):
            self._put(saver.writes, (target_thread, *key), dict(saver.writes[self._thread, *key]))
        exact = self._exact()
        for blob in copied.blobs:
            key = exact[blob.key]
            self._put(saver.blobs, (target_thread, *key[1:]), saver.blobs[key])
        return copied.rows

    def beside(self, thread_id: str | int) -> MemoryTxn:
        """Another thread, undone together with this one."""
        return MemoryTxn(self._rows, str(thread_id), self._undo)

    def _exact(self) -> dict[BlobKey, Any]:
        """The saver's keys of this thread's blobs, by their text."""
        known = self._rows.blob_keys(self.thread_id)
        return {(row[1], row[2], str(row[3])): row for row in known}

    def _change(self, space: str, name: str, change: Callable[[Any], Any]) -> int:
        held = self._saver.storage.get(self._thread, {}).get(space, {})
        if name not in held:
            return 0
        self._put(held, name, change(held[name]))
        return 1

    def _put(self, held: Any, key: Any, value: Any) -> None:
        before = held.get(key, _ABSENT)
        held[key] = value
        self._undo.append(partial(_restore, held, key, before))

    def _drop(self, held: Any, key: Any) -> int:
        if key not in held:
            return 0
        self._undo.append(partial(_restore, held, key, held.pop(key)))
        return 1


def _restore(held: Any, key: Any, before: Any) -> None:
    if before is _ABSENT:
        held.pop(key, None)
    else:
        held[key] = before
