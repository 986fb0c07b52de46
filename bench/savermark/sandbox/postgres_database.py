"""A pool of connections to the Postgres store's tables, and its transactions."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql as psql
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg_pool import AsyncConnectionPool

from savermark.backends.postgres_server import redact
from savermark.errors import BackendError
from savermark.sandbox import postgres_schema as sql

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from typing import TypeVar

    T = TypeVar("T")

Connection = psycopg.AsyncConnection[tuple[Any, ...]]

ATTEMPTS = 6  # of a write that the server gave up for another one
BATCH = 5_000  # rows a fetch, where a result is streamed


class PostgresDatabase:
    """The pool, and how a transaction on it is run."""

    def __init__(self, pool: AsyncConnectionPool[Connection]) -> None:
        self.pool = pool

    @classmethod
    @asynccontextmanager
    async def open(
        cls, dsn: str, *, schema: str | None = None, pool_size: int = 8
    ) -> AsyncIterator[PostgresDatabase]:
        """Opens the pool and lays the tables, in `schema` if given (made if missing).

        Raises `BackendError`, without the password, when the server cannot be reached.
        """
        await _reach(dsn)

        async def configure(connection: Connection) -> None:
            await connection.set_autocommit(True)
            await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            await connection.execute("SET extra_float_digits = 1")  # times come back exactly
            if schema is not None:
                path = psql.SQL("SET search_path TO {}").format(psql.Identifier(schema))
                await connection.execute(path)

        pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            dsn,
            kwargs={"client_encoding": "utf8"},  # whatever the environment says
            min_size=1,
            max_size=pool_size,
            configure=configure,
            open=False,
        )
        async with pool:
            database = cls(pool)
            try:
                async with pool.connection() as connection, connection.transaction():
                    await _lay_tables(connection, schema)
            except psycopg.Error as error:
                why = str(error).strip().partition("\n")[0]
                raise BackendError(f"cannot lay the sandbox tables: {redact(why, dsn)}") from None
            yield database

    async def write(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs the work in one transaction, anew when the server gave it up for another one."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self.pool.connection() as connection, connection.transaction():
                    return await work(connection)
            except (SerializationFailure, DeadlockDetected):
                if attempt == ATTEMPTS:
                    raise
            await asyncio.sleep(random.uniform(0.0, 0.01 * 2**attempt))
        raise AssertionError("unreachable")

    async def one(self, query: str, *values: Any) -> Sequence[Any] | None:
        """The first row of one statement."""
        async with self.pool.connection() as connection:
            return await (await connection.execute(query, values)).fetchone()

    async def all(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement."""
        async with self.pool.connection() as connection:
            return await (await connection.execute(query, values)).fetchall()

    async def run(self, query: str, *values: Any) -> None:
        """Executes one statement."""
        async with self.pool.connection() as connection:
            await connection.execute(query, values)

    async def stream(self, query: str) -> AsyncIterator[Sequence[Any]]:
        """The rows of one statement, as they were when it began, a batch in memory at a time."""
        async with (
            self.pool.connection() as connection,
            connection.transaction(),
            connection.cursor(name="savermark_stream") as cursor,
        ):
            cursor.itersize = BATCH
            await cursor.execute(query)
            async for row in cursor:
                yield row


async def _reach(dsn: str) -> None:
    """One plain connection first: a pool would try again and again, and log it."""
    try:
        async with await psycopg.AsyncConnection.connect(dsn, connect_timeout=10):
            return
    except psycopg.Error as error:
        why = " ".join(redact(str(error), dsn).split())
        raise BackendError(
            f"cannot reach Postgres ({why}): start the server, or correct the dsn"
        ) from None


async def _has_schema(connection: Connection, schema: str) -> bool:
    query = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
    return await (await connection.execute(query, (schema,))).fetchone() is not None


async def _lay_tables(connection: Connection, schema: str | None) -> None:
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (sql.SCHEMA_LOCK,))
    if schema is not None and not await _has_schema(connection, schema):
        make = psql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(psql.Identifier(schema))
        await connection.execute(make)
    found = await (await connection.execute(sql.HAS_TABLES)).fetchone()
    if found and found[0]:
        row = await (await connection.execute("SELECT version FROM sandbox_schema")).fetchone()
        if row is None or row[0] > sql.VERSION:
            raise BackendError("the tables were made by a newer sandbox store; upgrade savermark")
        return
    for text in sql.TABLES:
        await connection.execute(text)
