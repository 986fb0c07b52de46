"""The store in memory: the reference, and the fastest one. It keeps nothing across processes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from savermark.sandbox.engine import LedgerStore
from savermark.sandbox.lease import ThreadState
from savermark.sandbox.ledger import Ledger
from savermark.sandbox.records import BlobReference
from savermark.sandbox.rows import check_instance
from savermark.sandbox.rules import ThreadFacts, blob_keys
from savermark.sandbox.validation import check_id

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from typing import TypeVar

    from savermark.sandbox.lease import LeaseTimes
    from savermark.sandbox.records import Clock, SandboxInstance
    from savermark.sandbox.rules import Snapshot

    T = TypeVar("T")


def system_clock() -> float:
    """Milliseconds since the epoch by this machine's clock."""
    return time.time() * 1000.0


class MemoryLedger(Ledger):
    """Dictionaries. Its methods never suspend, and the checks of a write all precede its rows."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.threads: dict[str, ThreadState] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.by_thread: dict[str, dict[str, Snapshot]] = {}
        self.used_ids: set[str] = set()
        self.references: Counter[str] = Counter()
        self.records: dict[str, dict[tuple[str, str], str]] = {}

    async def facts(
        self, thread_id: str, checkpoint_id: str | None = None, *, create: bool = False
    ) -> ThreadFacts:
        """The thread, the time, and whether the id was ever used."""
        state = self.threads.get(thread_id, ThreadState())
        return ThreadFacts(state, self.clock(), checkpoint_id in self.used_ids)

    async def save_lease(self, thread_id: str, state: ThreadState) -> None:
        """Stores fence, token and expiry."""
        self.threads[thread_id] = state

    async def snapshot(self, checkpoint_id: str) -> Snapshot | None:
        """A checkpoint or None."""
        return self.snapshots.get(checkpoint_id)

    async def stored_parent(self, checkpoint_id: str) -> str | None:
        """The parent id of a checkpoint when that parent is stored, else None."""
        parent = self.snapshots[checkpoint_id].parent_id
        return parent if parent in self.snapshots else None

    async def parents(self, thread_id: str) -> Mapping[str, str | None]:
        """The parent id of each stored checkpoint of the thread."""
        return {key: row.parent_id for key, row in self.by_thread.get(thread_id, {}).items()}

    async def insert(self, snapshot: Snapshot) -> None:
        """Stores it, makes it the head, and counts its blobs."""
        self.used_ids.add(snapshot.id)
        self.snapshots[snapshot.id] = snapshot
        self.by_thread.setdefault(snapshot.thread_id, {})[snapshot.id] = snapshot
        self.references.update(blob_keys(snapshot))
        self._set_head(snapshot.thread_id, snapshot.id)

    async def remove(self, thread_id: str, ids: Sequence[str], head_id: str | None) -> None:
        """Removes checkpoints, uncounts their blobs, and sets the head."""
        for checkpoint_id in ids:
            snapshot = self.snapshots.pop(checkpoint_id)
            del self.by_thread[thread_id][checkpoint_id]
            for key in blob_keys(snapshot):
                self.references[key] -= 1
                if not self.references[key]:
                    del self.references[key]
        self._set_head(thread_id, head_id)

    async def occupied(self, thread_id: str) -> bool:
        """Whether the thread has any checkpoint or thread record."""
        return bool(self.by_thread.get(thread_id) or self.records.get(thread_id))

    async def save_record(self, thread_id: str, kind: str, record_id: str, value: str) -> None:
        """Stores or replaces a thread record."""
        self.records.setdefault(thread_id, {})[kind, record_id] = value

    def _set_head(self, thread_id: str, head_id: str | None) -> None:
        state = self.threads.get(thread_id, ThreadState())
        self.threads[thread_id] = replace(state, head_id=head_id)


class MemorySandboxStore(LedgerStore):
    """A checkpoint store in memory, safe to share among threads and event loops."""

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        lease: LeaseTimes | None = None,
        symlinks: bool = True,
    ) -> None:
        super().__init__(lease, symlinks=symlinks)
        self._lock = threading.Lock()
        self._ledger = MemoryLedger(clock)

    async def _write(self, work: Callable[[Ledger], Awaitable[T]]) -> T:
        with self._lock:  # no await in the work suspends, so the lock is held but for a moment
            return await work(self._ledger)

    async def _get(self, checkpoint_id: str) -> Snapshot | None:
        with self._lock:
            return self._ledger.snapshots.get(checkpoint_id)

    async def _list(self, thread_id: str) -> builtins.list[Snapshot]:
        with self._lock:
            found = list(self._ledger.by_thread.get(thread_id, {}).values())
        # code-point order, which is how Python compares strings, is UTF-8 byte order
        return sorted(found, key=lambda row: (row.created_at, row.id))

    async def _head(self, thread_id: str) -> str | None:
        with self._lock:
            return self._ledger.threads.get(thread_id, ThreadState()).head_id

    async def _transcript(self, thread_id: str) -> str | None:
        with self._lock:
            return self._ledger.records.get(thread_id, {}).get(("transcript", ""))

    async def list_blob_references(self) -> AsyncIterator[BlobReference]:
        """Each blob key in use over all threads, by UTF-8 bytes, with its count."""
        with self._lock:
            found = sorted(self._ledger.references.items())
        for key, count in found:
            yield BlobReference(key, count)


class MemoryInstanceStore:
    """Instance records in memory."""

    def __init__(self) -> None:
        self._records: dict[str, SandboxInstance] = {}

    async def get(self, key: str) -> SandboxInstance | None:
        """The record as it was stored, or None."""
        check_id(key, "instance key")
        return self._records.get(key)

    async def upsert(self, record: SandboxInstance) -> None:
        """Replaces the whole record of its key."""
        self._records[record.key] = check_instance(record)

    async def delete(self, key: str) -> None:
        """Removes the record; a missing one is no error."""
        check_id(key, "instance key")
        self._records.pop(key, None)
