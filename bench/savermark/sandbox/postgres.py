"""The store in Postgres, for any number of processes and hosts.

A write locks its thread's row first, so the checks that follow read what no one else can change.
Without a clock of the caller's, time is the server's: hosts whose clocks differ agree on leases.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psycopg.errors import UniqueViolation

from savermark.backends.postgres_server import serve
from savermark.sandbox import postgres_schema as sql
from savermark.sandbox import rows
from savermark.sandbox.codec import from_text, to_text
from savermark.sandbox.engine import LedgerStore
from savermark.sandbox.lease import ThreadState
from savermark.sandbox.ledger import IdTakenError, Ledger
from savermark.sandbox.postgres_database import PostgresDatabase
from savermark.sandbox.records import BlobReference
from savermark.sandbox.rules import ThreadFacts, blob_keys
from savermark.sandbox.validation import check_id

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from typing import TypeVar

    from savermark.sandbox.lease import LeaseTimes
    from savermark.sandbox.postgres_database import Connection
    from savermark.sandbox.records import Clock, SandboxInstance
    from savermark.sandbox.rules import Snapshot

    T = TypeVar("T")


def _snapshot(row: Sequence[Any] | None) -> Snapshot | None:
    return None if row is None else rows.snapshot_from(row[:8], row[8] or (), row[9] or ())


def _columns(found: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    return [[row[at] for row in found] for at in range(width)]


class PostgresLedger(Ledger):
    """The rows of the store inside one transaction."""

    def __init__(self, connection: Connection, clock: Clock | None) -> None:
        self._connection = connection
        self._clock = clock

    async def _row(self, query: str, *values: Any) -> Sequence[Any] | None:
        return await (await self._connection.execute(query, values)).fetchone()

    async def facts(
        self, thread_id: str, checkpoint_id: str | None = None, *, create: bool = False
    ) -> ThreadFacts:
        """Locks the thread, then reads it, the time, and whether the id was ever used."""
        key, used, now = to_text(thread_id), None, None
        held = self._connection
        async with held.pipeline():  # in this order, and the time after the lock
            if create:
                await held.execute(sql.CREATE_THREAD, (key,))
            thread = await held.execute(sql.THREAD, (key,))
            if self._clock is None:
                now = await held.execute(sql.NOW)
            if checkpoint_id is not None:
                used = await held.execute(sql.ID_USED, (to_text(checkpoint_id),))
        state, row = ThreadState(), await thread.fetchone()
        if row is not None:
            state = ThreadState(None if row[0] is None else from_text(row[0]), *row[1:])
        id_used = used is not None and await used.fetchone() is not None
        return ThreadFacts(state, await self._now(now), id_used)

    async def _now(self, asked: Any) -> float:
        if self._clock is not None:
            return self._clock()
        return float((await asked.fetchone())[0])

    async def save_lease(self, thread_id: str, state: ThreadState) -> None:
        """Stores fence, token and expiry of a thread whose row exists."""
        await self._connection.execute(
            sql.SAVE_LEASE,
            (state.fence, state.owner_token, state.expires_at, to_text(thread_id)),
        )

    async def snapshot(self, checkpoint_id: str) -> Snapshot | None:
        """A checkpoint, which then cannot be deleted until the transaction ends."""
        return _snapshot(await self._row(sql.HELD_CHECKPOINT, to_text(checkpoint_id)))

    async def stored_parent(self, checkpoint_id: str) -> str | None:
        """The parent id of a checkpoint when that parent is stored, else None."""
        row = await self._row(sql.STORED_PARENT, to_text(checkpoint_id))
        return from_text(row[0]) if row else None

    async def parents(self, thread_id: str) -> Mapping[str, str | None]:
        """The parent id of each stored checkpoint of the thread."""
        found = await self._connection.execute(sql.PARENTS, (to_text(thread_id),))
        return {
            from_text(key): None if up is None else from_text(up)
            for key, up in await found.fetchall()
        }

    async def insert(self, snapshot: Snapshot) -> None:
        """Stores it, makes it the head, and counts its blobs. Raises `IdTakenError`."""
        held, key = self._connection, to_text(snapshot.id)
        entries = _columns([rows.entry_row(item) for item in snapshot.files], 5)
        artifacts = _columns([rows.artifact_row(item) for item in snapshot.artifacts], 6)
        try:
            async with held.pipeline():
                await held.execute(sql.ADD_ID, (key,))
                await held.execute(
                    sql.ADD_CHECKPOINT,
                    (*rows.checkpoint_row(snapshot), *entries, *artifacts),
                )
                await held.execute(sql.ADD_REFERENCES, (blob_keys(snapshot),))
                await held.execute(sql.SET_HEAD, (key, to_text(snapshot.thread_id)))
        except UniqueViolation as error:
            raise IdTakenError from error

    async def remove(self, thread_id: str, ids: Sequence[str], head_id: str | None) -> None:
        """Removes checkpoints, uncounts their blobs, and sets the head."""
        held = self._connection
        dropped = await held.execute(sql.DROP_CHECKPOINTS, ([to_text(item) for item in ids],))
        gone = {"gone": [row[0] for row in await dropped.fetchall()]}
        head = None if head_id is None else to_text(head_id)
        async with held.pipeline():
            for text in sql.UNCOUNT:
                await held.execute(text, gone)
            await held.execute(sql.SET_HEAD, (head, to_text(thread_id)))

    async def occupied(self, thread_id: str) -> bool:
        """Whether the thread has any checkpoint or thread record."""
        found = await self._connection.execute(sql.OCCUPIED, {"thread": to_text(thread_id)})
        row = await found.fetchone()
        return bool(row and row[0])

    async def save_record(self, thread_id: str, kind: str, record_id: str, value: str) -> None:
        """Stores or replaces a thread record."""
        await self._connection.execute(
            sql.SAVE_RECORD, (to_text(thread_id), kind, to_text(record_id), value)
        )


class PostgresSandboxStore(LedgerStore):
    """A checkpoint store in Postgres; `instances` keeps instance records in the same place."""

    def __init__(
        self,
        database: PostgresDatabase,
        *,
        clock: Clock | None = None,
        lease: LeaseTimes | None = None,
        symlinks: bool = True,
    ) -> None:
        super().__init__(lease, symlinks=symlinks)
        self.database = database
        self.instances = PostgresInstanceStore(database)
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        dsn: str | None = None,
        *,
        schema: str | None = None,
        clock: Clock | None = None,
        lease: LeaseTimes | None = None,
        symlinks: bool = True,
        pool_size: int = 8,
    ) -> AsyncIterator[PostgresSandboxStore]:
        """Opens a pool on the server and lays the tables if they are missing.

        Without a dsn the server is that of SAVERMARK_POSTGRES_DSN, or an embedded one that is
        removed with its data at the end.
        """
        with ExitStack() as service:
            if dsn is None:
                folder = Path(service.enter_context(tempfile.TemporaryDirectory()))
                dsn = await asyncio.to_thread(service.enter_context, serve(folder))
            async with PostgresDatabase.open(dsn, schema=schema, pool_size=pool_size) as database:
                yield cls(database, clock=clock, lease=lease, symlinks=symlinks)

    async def _write(self, work: Callable[[Ledger], Awaitable[T]]) -> T:
        async def run(connection: Connection) -> T:
            return await work(PostgresLedger(connection, self._clock))

        return await self.database.write(run)

    async def _get(self, checkpoint_id: str) -> Snapshot | None:
        return _snapshot(await self.database.one(sql.CHECKPOINT, to_text(checkpoint_id)))

    async def _list(self, thread_id: str) -> builtins.list[Snapshot]:
        found = await self.database.all(sql.CHECKPOINTS, to_text(thread_id))
        return [snapshot for row in found if (snapshot := _snapshot(row))]

    async def _head(self, thread_id: str) -> str | None:
        row = await self.database.one(sql.HEAD, to_text(thread_id))
        return None if row is None or row[0] is None else from_text(row[0])

    async def _transcript(self, thread_id: str) -> str | None:
        row = await self.database.one(sql.TRANSCRIPT, to_text(thread_id))
        return None if row is None else str(row[0])

    async def list_blob_references(self) -> AsyncIterator[BlobReference]:
        """Each blob key in use over all threads, by UTF-8 bytes, with its count."""
        async for key, uses in self.database.stream(sql.REFERENCES):
            yield BlobReference(key, uses)


class PostgresInstanceStore:
    """Instance records in Postgres."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def get(self, key: str) -> SandboxInstance | None:
        """The record as it was stored, or None."""
        check_id(key, "instance key")
        row = await self._database.one(sql.INSTANCE, to_text(key))
        return None if row is None else rows.instance_from(row)

    async def upsert(self, record: SandboxInstance) -> None:
        """Replaces the whole record of its key."""
        await self._database.run(sql.SAVE_INSTANCE, *rows.instance_row(rows.check_instance(record)))

    async def delete(self, key: str) -> None:
        """Removes the record; a missing one is no error."""
        check_id(key, "instance key")
        await self._database.run(sql.DROP_INSTANCE, to_text(key))
