"""The store in a SQLite file. Several processes may share the file."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from savermark.sandbox import rows
from savermark.sandbox import sqlite_schema as sql
from savermark.sandbox.codec import from_text, to_json, to_text
from savermark.sandbox.engine import LedgerStore
from savermark.sandbox.lease import ThreadState
from savermark.sandbox.ledger import Ledger
from savermark.sandbox.memory import system_clock
from savermark.sandbox.records import BlobReference
from savermark.sandbox.rules import ThreadFacts, blob_keys
from savermark.sandbox.sqlite_database import SqliteDatabase, fetch_all, one
from savermark.sandbox.validation import check_id

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeVar

    import aiosqlite

    from savermark.sandbox.lease import LeaseTimes
    from savermark.sandbox.records import Clock, SandboxInstance
    from savermark.sandbox.rules import Snapshot

    T = TypeVar("T")


async def _snapshot(connection: aiosqlite.Connection, checkpoint_id: str) -> Snapshot | None:
    row = await one(connection, sql.CHECKPOINT, to_text(checkpoint_id))
    if row is None:
        return None
    entries = await fetch_all(connection, sql.ENTRIES, row[0])
    artifacts = await fetch_all(connection, sql.ARTIFACTS, row[0])
    return rows.snapshot_from(row[1:], _unnumbered(entries), _unnumbered(artifacts))


def _unnumbered(found: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    return [row[1:] for row in found]


def _grouped(found: Iterable[Sequence[Any]]) -> dict[int, list[Sequence[Any]]]:
    return {seq: _unnumbered(group) for seq, group in groupby(found, key=itemgetter(0))}


class SqliteLedger(Ledger):
    """The rows of the store inside one immediate transaction."""

    def __init__(self, connection: aiosqlite.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    async def facts(
        self, thread_id: str, checkpoint_id: str | None = None, *, create: bool = False
    ) -> ThreadFacts:
        """The thread, the time, and whether the id was ever used."""
        key = to_text(thread_id)
        if create:
            await self._connection.execute(sql.CREATE_THREAD, (key,))
        row = await one(self._connection, sql.THREAD, key)
        used = False
        if checkpoint_id is not None:
            used = await one(self._connection, sql.ID_USED, to_text(checkpoint_id)) is not None
        state = ThreadState()
        if row is not None:
            head = None if row[0] is None else from_text(row[0])
            state = ThreadState(head, row[1], row[2], row[3])
        return ThreadFacts(state, self._clock(), used)

    async def save_lease(self, thread_id: str, state: ThreadState) -> None:
        """Stores fence, token and expiry of a thread whose row exists."""
        await self._connection.execute(
            sql.SAVE_LEASE, (state.fence, state.owner_token, state.expires_at, to_text(thread_id))
        )

    async def snapshot(self, checkpoint_id: str) -> Snapshot | None:
        """A checkpoint or None."""
        return await _snapshot(self._connection, checkpoint_id)

    async def stored_parent(self, checkpoint_id: str) -> str | None:
        """The parent id of a checkpoint when that parent is stored, else None."""
        row = await one(self._connection, sql.STORED_PARENT, to_text(checkpoint_id))
        return from_text(row[0]) if row else None

    async def parents(self, thread_id: str) -> Mapping[str, str | None]:
        """The parent id of each stored checkpoint of the thread."""
        found = await fetch_all(self._connection, sql.PARENTS, to_text(thread_id))
        return {from_text(key): None if up is None else from_text(up) for key, up in found}

    async def insert(self, snapshot: Snapshot) -> None:
        """Stores it, makes it the head, and counts its blobs."""
        held = self._connection
        await held.execute(sql.ADD_ID, (to_text(snapshot.id),))
        added = await held.execute(sql.ADD_CHECKPOINT, rows.checkpoint_row(snapshot))
        seq = added.lastrowid
        entries = [(seq, at, *rows.entry_row(item)) for at, item in enumerate(snapshot.files)]
        await held.executemany(sql.ADD_ENTRY, entries)
        await held.executemany(
            sql.ADD_ARTIFACT,
            [(seq, at, *rows.artifact_row(item)) for at, item in enumerate(snapshot.artifacts)],
        )
        await held.executemany(sql.ADD_REFERENCE, [(key,) for key in blob_keys(snapshot)])
        await self._set_head(snapshot.thread_id, snapshot.id)

    async def remove(self, thread_id: str, ids: Sequence[str], head_id: str | None) -> None:
        """Removes checkpoints, uncounts their blobs, and sets the head."""
        held = self._connection
        found = await fetch_all(held, sql.SEQS, to_json([to_text(item) for item in ids]))
        gone = (to_json([row[0] for row in found]),)
        for statement in (sql.UNCOUNT, sql.FORGET, *sql.DROP):
            await held.execute(statement, gone)
        await self._set_head(thread_id, head_id)

    async def occupied(self, thread_id: str) -> bool:
        """Whether the thread has any checkpoint or thread record."""
        row = await one(self._connection, sql.OCCUPIED, to_text(thread_id))
        return bool(row and row[0])

    async def save_record(self, thread_id: str, kind: str, record_id: str, value: str) -> None:
        """Stores or replaces a thread record."""
        await self._connection.execute(
            sql.SAVE_RECORD, (to_text(thread_id), kind, to_text(record_id), value)
        )

    async def _set_head(self, thread_id: str, head_id: str | None) -> None:
        head = None if head_id is None else to_text(head_id)
        await self._connection.execute(sql.SET_HEAD, (head, to_text(thread_id)))


class SqliteSandboxStore(LedgerStore):
    """A checkpoint store in a SQLite file; `instances` keeps instance records in the same file."""

    def __init__(
        self,
        database: SqliteDatabase,
        *,
        clock: Clock = system_clock,
        lease: LeaseTimes | None = None,
        symlinks: bool = True,
    ) -> None:
        super().__init__(lease, symlinks=symlinks)
        self.database = database
        self.instances = SqliteInstanceStore(database)
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | Path,
        *,
        clock: Clock = system_clock,
        lease: LeaseTimes | None = None,
        symlinks: bool = True,
        synchronous: str = "FULL",
    ) -> AsyncIterator[SqliteSandboxStore]:
        """Opens the file, made if missing, and closes it at the end."""
        database = await SqliteDatabase.connect(path, synchronous)
        try:
            yield cls(database, clock=clock, lease=lease, symlinks=symlinks)
        finally:
            await database.close()

    async def _write(self, work: Callable[[Ledger], Awaitable[T]]) -> T:
        async with self.database.transaction("IMMEDIATE") as connection:
            return await work(SqliteLedger(connection, self._clock))

    async def _get(self, checkpoint_id: str) -> Snapshot | None:
        async with self.database.transaction() as connection:
            return await _snapshot(connection, checkpoint_id)

    async def _list(self, thread_id: str) -> builtins.list[Snapshot]:
        key = to_text(thread_id)
        async with self.database.transaction() as connection:
            found = await fetch_all(connection, sql.CHECKPOINTS, key)
            entries = _grouped(await fetch_all(connection, sql.THREAD_ENTRIES, key))
            artifacts = _grouped(await fetch_all(connection, sql.THREAD_ARTIFACTS, key))
        return [
            rows.snapshot_from(row[1:], entries.get(row[0], ()), artifacts.get(row[0], ()))
            for row in found
        ]

    async def _head(self, thread_id: str) -> str | None:
        async with self.database.transaction() as connection:
            row = await one(connection, sql.HEAD, to_text(thread_id))
        return None if row is None or row[0] is None else from_text(row[0])

    async def _transcript(self, thread_id: str) -> str | None:
        async with self.database.transaction() as connection:
            row = await one(connection, sql.TRANSCRIPT, to_text(thread_id))
        return None if row is None else str(row[0])

    async def list_blob_references(self) -> AsyncIterator[BlobReference]:
        """Each blob key in use over all threads, by UTF-8 bytes, with its count."""
        async for key, uses in self.database.stream(sql.REFERENCES):
            yield BlobReference(key, uses)


class SqliteInstanceStore:
    """Instance records in a SQLite file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def get(self, key: str) -> SandboxInstance | None:
        """The record as it was stored, or None."""
        check_id(key, "instance key")
        async with self._database.transaction() as connection:
            row = await one(connection, sql.INSTANCE, to_text(key))
        return None if row is None else rows.instance_from(row)

    async def upsert(self, record: SandboxInstance) -> None:
        """Replaces the whole record of its key."""
        values = rows.instance_row(rows.check_instance(record))
        async with self._database.transaction("IMMEDIATE") as connection:
            await connection.execute(sql.SAVE_INSTANCE, values)

    async def delete(self, key: str) -> None:
        """Removes the record; a missing one is no error."""
        check_id(key, "instance key")
        async with self._database.transaction("IMMEDIATE") as connection:
            await connection.execute(sql.DROP_INSTANCE, (to_text(key),))
