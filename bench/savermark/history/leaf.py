"""One childless checkpoint at a time: has it writes, and its removal, each in one statement.

For work that may not look at a whole thread. The removal is conditional: same id, same parent, no
writes, no child, still the newest. Both search by primary key, so what they cost does not grow with
the thread; a child whose id sorts below its parent's is looked for among the ids after the leaf's
parent, which is where clocks that differ a little would put it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from savermark.errors import BackendError, Unsupported
from savermark.history.kinds import (
    is_async_postgres,
    is_async_sqlite,
    is_memory,
    is_sync_postgres,
    is_sync_sqlite,
    unwrapped,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psycopg
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver


@dataclass(frozen=True, slots=True)
class Leaf:
    """A checkpoint and the parent it has."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str


class Leaves(Protocol):
    """What is done with one leaf of a sync saver. Errors of the engine come as `BackendError`."""

    def has_writes(self, leaf: Leaf) -> bool:
        """Whether any write row is stored on it."""
        ...

    def remove(self, leaf: Leaf) -> bool:
        """Delete its checkpoint row if all is as the leaf says; whether it was deleted."""
        ...


class AsyncLeaves(Protocol):
    """The async twin of `Leaves`, on the saver's own connection."""

    async def has_writes(self, leaf: Leaf) -> bool:
        """Whether any write row is stored on it."""
        ...

    async def remove(self, leaf: Leaf) -> bool:
        """Delete its checkpoint row if all is as the leaf says; whether it was deleted."""
        ...


_WHERE = "thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns"
_PROBE = f"SELECT 1 FROM {{writes}} WHERE {_WHERE} AND checkpoint_id = :checkpoint_id LIMIT 1"
_REMOVE = f"""
DELETE FROM {{checkpoints}} WHERE {_WHERE} AND checkpoint_id = :checkpoint_id
AND parent_checkpoint_id = :parent_id
AND NOT EXISTS (SELECT 1 FROM {{writes}} WHERE {_WHERE} AND checkpoint_id = :checkpoint_id)
AND NOT EXISTS (
    SELECT 1 FROM {{checkpoints}} WHERE {_WHERE} AND checkpoint_id > :parent_id
    AND (checkpoint_id > :checkpoint_id OR parent_checkpoint_id = :checkpoint_id)
)
"""
_SQLITE = {"checkpoints": "main.checkpoints", "writes": "main.writes"}
_POSTGRES = {"checkpoints": "checkpoints", "writes": "checkpoint_writes"}
_SQLITE_PROBE, _SQLITE_REMOVE = (text.format(**_SQLITE) for text in (_PROBE, _REMOVE))


def _percent(text: str) -> str:
    for name in Leaf.__slots__:
        text = text.replace(f":{name}", f"%({name})s")
    return text.format(**_POSTGRES)


_POSTGRES_PROBE, _POSTGRES_REMOVE = _percent(_PROBE), _percent(_REMOVE) + "RETURNING 1"


def leaves(saver: BaseCheckpointSaver[Any]) -> Leaves:
    """For a sync saver or the memory saver. Raises `Unsupported` for one whose tables are unknown.

    Async savers have `aleaves`.
    """
    saver = unwrapped(saver)
    if is_memory(saver):
        return MemoryLeaves(saver)
    if is_sync_sqlite(saver):
        return SqliteLeaves(saver)
    if is_sync_postgres(saver):
        return PostgresLeaves(saver)
    raise _unknown(saver)


def aleaves(saver: BaseCheckpointSaver[Any]) -> AsyncLeaves:
    """The async twin of `leaves`, for an async saver or the memory saver."""
    saver = unwrapped(saver)
    if is_memory(saver):
        return AsyncMemoryLeaves(saver)
    if is_async_sqlite(saver):
        return AsyncSqliteLeaves(saver)
    if is_async_postgres(saver):
        return AsyncPostgresLeaves(saver)
    raise _unknown(saver)


class MemoryLeaves:
    """In the dictionaries of an `InMemorySaver`."""

    def __init__(self, saver: InMemorySaver) -> None:
        from savermark.history.memory import MemoryRows

        self.saver, self.rows = saver, MemoryRows(saver)

    def has_writes(self, leaf: Leaf) -> bool:
        """One lookup."""
        return bool(self.saver.writes.get(self._writes(leaf)))

    def remove(self, leaf: Leaf) -> bool:
        """A pass over the ids of the namespace, as the saver makes to find its newest."""
        with self.rows.transaction(leaf.thread_id):
            spaces = self.saver.storage.get(self.rows.raw(leaf.thread_id), {})
            held = spaces.get(leaf.checkpoint_ns, {})
            found = held.get(leaf.checkpoint_id)
            if found is None or found[2] != leaf.parent_id or self.has_writes(leaf):
                return False
            for name, row in list(held.items()):
                if name > leaf.checkpoint_id or row[2] == leaf.checkpoint_id:
                    return False
            del held[leaf.checkpoint_id]
            self.saver.writes.pop(self._writes(leaf), None)
            return True

    def _writes(self, leaf: Leaf) -> Any:
        return self.rows.raw(leaf.thread_id), leaf.checkpoint_ns, leaf.checkpoint_id


class AsyncMemoryLeaves:
    """The same: nothing in it waits."""

    def __init__(self, saver: InMemorySaver) -> None:
        self._inner = MemoryLeaves(saver)

    async def has_writes(self, leaf: Leaf) -> bool:
        """One lookup."""
        return self._inner.has_writes(leaf)

    async def remove(self, leaf: Leaf) -> bool:
        """A pass over the ids of the namespace."""
        return self._inner.remove(leaf)


class SqliteLeaves:
    """Over the connection and under the lock of a `SqliteSaver`."""

    def __init__(self, saver: SqliteSaver) -> None:
        from savermark.history.sqlite import SqliteRows

        self.rows = SqliteRows.of(saver)

    def has_writes(self, leaf: Leaf) -> bool:
        """One statement."""
        with self.rows.cursor() as cursor:
            return cursor.execute(_SQLITE_PROBE, asdict(leaf)).fetchone() is not None

    def remove(self, leaf: Leaf) -> bool:
        """One statement in a transaction of its own."""
        with self.rows.cursor() as cursor:
            connection = cursor.connection
            if connection.in_transaction:
                raise BackendError("the connection is inside a transaction: commit it first")
            try:
                count = cursor.execute(_SQLITE_REMOVE, asdict(leaf)).rowcount
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
            return count > 0


class AsyncSqliteLeaves:
    """Over the connection and under the lock of an `AsyncSqliteSaver`."""

    def __init__(self, saver: AsyncSqliteSaver) -> None:
        self.saver = saver

    async def has_writes(self, leaf: Leaf) -> bool:
        """One statement."""
        await self.saver.setup()
        async with (
            self.saver.lock,
            self.saver.conn.execute(_SQLITE_PROBE, asdict(leaf)) as cursor,
        ):
            return await cursor.fetchone() is not None

    async def remove(self, leaf: Leaf) -> bool:
        """One statement in a transaction of its own."""
        connection = self.saver.conn
        async with self.saver.lock:
            if connection.in_transaction:
                raise BackendError("the connection is inside a transaction: commit it first")
            try:
                async with connection.execute(_SQLITE_REMOVE, asdict(leaf)) as cursor:
                    count = cursor.rowcount
                await connection.commit()
            except BaseException:
                await connection.rollback()
                raise
            return count > 0


class PostgresLeaves:
    """Over the connection or pool and under the lock of a `PostgresSaver`."""

    def __init__(self, saver: PostgresSaver) -> None:
        from savermark.history.postgres import PostgresRows

        self.rows = PostgresRows.of(saver)

    def has_writes(self, leaf: Leaf) -> bool:
        """One statement."""
        return self._found(_POSTGRES_PROBE, leaf)

    def remove(self, leaf: Leaf) -> bool:
        """One statement, which commits by itself."""
        return self._found(_POSTGRES_REMOVE, leaf)

    def _found(self, statement: str, leaf: Leaf) -> bool:
        with self.rows.cursor() as cursor:
            _committing(cursor.connection)
            return cursor.execute(statement, asdict(leaf)).fetchone() is not None


class AsyncPostgresLeaves:
    """Over the connection or pool and under the lock of an `AsyncPostgresSaver`."""

    def __init__(self, saver: AsyncPostgresSaver) -> None:
        self.saver = saver

    async def has_writes(self, leaf: Leaf) -> bool:
        """One statement."""
        return await self._found(_POSTGRES_PROBE, leaf)

    async def remove(self, leaf: Leaf) -> bool:
        """One statement, which commits by itself."""
        return await self._found(_POSTGRES_REMOVE, leaf)

    async def _found(self, statement: str, leaf: Leaf) -> bool:
        async with self._connected() as connection, connection.cursor() as cursor:
            _committing(connection)
            await cursor.execute(statement, asdict(leaf))
            return await cursor.fetchone() is not None

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        import psycopg

        async with self.saver.lock:
            if isinstance(self.saver.conn, psycopg.AsyncConnection):
                yield self.saver.conn
            else:
                async with self.saver.conn.connection() as lent:
                    yield lent


def _committing(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if not connection.autocommit:
        raise BackendError("maintenance needs an autocommit connection: open one")


def _unknown(saver: BaseCheckpointSaver[Any]) -> Unsupported:
    return Unsupported(
        f"the rows of a {type(saver).__name__} are not known to savermark in this api: only those "
        "of InMemorySaver, SqliteSaver and PostgresSaver and their async twins are"
    )
