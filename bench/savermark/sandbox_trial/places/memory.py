"""The checkpoint store in memory; it lives and dies with its process."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from savermark.sandbox import rows
from savermark.sandbox.memory import MemorySandboxStore
from savermark.sandbox_trial.places.base import StorePlace
from savermark.storage import SHARED, FootprintRow, StorageRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from savermark.backends.base import Location
    from savermark.storage import SandboxTable


class MemoryPlace(StorePlace):
    """One store object, the same at every opening."""

    cold = False

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self._store = MemorySandboxStore()

    def create(self) -> None:
        """Nothing: a new object is empty."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MemorySandboxStore]:
        yield self._store

    def storage(self) -> list[StorageRow]:
        """Counts what a database would hold: the same rows, the same text."""
        counts: Counter[tuple[str, SandboxTable]] = Counter()
        sizes: Counter[tuple[str, SandboxTable]] = Counter()
        for thread, table, texts in self._rows():
            counts[thread, table] += 1
            sizes[thread, table] += sum(len(text.encode()) for text in texts if text)
        return [
            StorageRow(thread, "", table, None, count, sizes[thread, table], sizes[thread, table])
            for (thread, table), count in sorted(counts.items())
        ]

    def _rows(self) -> Iterator[tuple[str, SandboxTable, tuple[str | None, ...]]]:
        ledger = self._store._ledger
        for snapshot in ledger.snapshots.values():
            thread = snapshot.thread_id
            row = rows.checkpoint_row(snapshot)
            yield thread, "checkpoints", (row[0], row[2], *row[4:])
            for entry in snapshot.files:
                kind, path, key, _, target = rows.entry_row(entry)
                yield thread, "entries", (kind, path, key, target)
            for artifact in snapshot.artifacts:
                name = rows.artifact_row(artifact)
                yield thread, "artifacts", (*name[:3], name[4])
        for thread, state in ledger.threads.items():
            yield thread, "threads", (state.head_id, state.owner_token)
        for thread, records in ledger.records.items():
            for (kind, record_id), value in records.items():
                yield thread, "records", (kind, record_id, value)
        for checkpoint_id in ledger.used_ids:
            yield SHARED, "ids", (checkpoint_id,)
        for key in ledger.references:
            yield SHARED, "references", (key,)

    def footprint(self) -> list[FootprintRow]:
        sizes: Counter[SandboxTable] = Counter()
        for _, table, texts in self._rows():
            sizes[table] += sum(len(text.encode()) for text in texts if text)
        return [FootprintRow("payload", table, size) for table, size in sorted(sizes.items())]

    def describe(self) -> dict[str, Any]:
        return {"store": "MemorySandboxStore"}

    def destroy(self) -> None:
        self._store = MemorySandboxStore()


PLACE = MemoryPlace
