"""One connection to the SQLite store's file, and its transactions."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiosqlite

from savermark.errors import BackendError, UsageError
from savermark.sandbox import sqlite_schema as sql

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

BUSY_MS = 60_000  # how long a write waits for another process's transaction
BATCH = 5_000  # rows a fetch, where a result is streamed


class SqliteDatabase:
    """One connection, its transactions one at a time; a stream reads on a connection of its own.

    `synchronous` is SQLite's: FULL survives a power cut, NORMAL a crash of the process.
    """

    def __init__(self, path: Path, connection: aiosqlite.Connection, synchronous: str) -> None:
        self.path = path
        self.connection = connection
        self.synchronous = synchronous
        self._turn = asyncio.Lock()

    @classmethod
    async def connect(cls, path: str | Path, synchronous: str = "FULL") -> SqliteDatabase:
        """Opens the file and lays the tables. Raises `BackendError` if it cannot."""
        if str(path) == ":memory:":
            raise UsageError("the SQLite store needs a file; in memory use MemorySandboxStore")
        try:
            # first without aiosqlite, whose thread outlives the event loop when it cannot connect
            await asyncio.to_thread(_probe, path)
            connection = await _connect(Path(path), synchronous)
        except aiosqlite.Error as error:
            raise BackendError(f"cannot open the SQLite file {path}: {error}") from error
        database = cls(Path(path), connection, synchronous)
        try:
            async with database.transaction("IMMEDIATE") as held:
                await _lay_tables(held)
        except BaseException:
            await connection.close()
            raise
        return database

    @asynccontextmanager
    async def transaction(self, mode: str = "DEFERRED") -> AsyncIterator[aiosqlite.Connection]:
        """One transaction: committed at the end, rolled back on any exception."""
        async with self._turn:
            try:
                await self.connection.execute(f"BEGIN {mode}")
                yield self.connection
                await self.connection.execute("COMMIT")
            except BaseException:
                # shielded: a second cancellation must not leave the transaction open
                await asyncio.shield(self.connection.rollback())
                raise

    async def stream(self, query: str) -> AsyncIterator[Sequence[Any]]:
        """The rows of one statement, as they were when it began, a batch in memory at a time."""
        connection = await _connect(self.path, self.synchronous)
        try:
            cursor = await connection.execute(query)
            while batch := await cursor.fetchmany(BATCH):
                for row in batch:
                    yield row
        finally:
            await connection.close()

    async def close(self) -> None:
        """Closes the connection."""
        await self.connection.close()


def _probe(path: str | Path) -> None:
    with closing(sqlite3.connect(path, timeout=BUSY_MS / 1000)) as connection:
        connection.execute("PRAGMA schema_version")


async def _connect(path: Path, synchronous: str) -> aiosqlite.Connection:
    connection = await aiosqlite.connect(path, isolation_level=None, timeout=BUSY_MS / 1000)
    try:
        await connection.execute("PRAGMA journal_mode = WAL")
        await connection.execute(f"PRAGMA synchronous = {synchronous}")
    except BaseException:
        await connection.close()
        raise
    return connection


async def _lay_tables(connection: aiosqlite.Connection) -> None:
    row = await one(connection, "PRAGMA user_version")
    version = row[0] if row else 0
    if version > sql.VERSION:
        raise BackendError(
            f"the file was made by a newer sandbox store (schema {version}); upgrade savermark"
        )
    if version == sql.VERSION:
        return
    for statement in sql.TABLES:
        await connection.execute(statement)
    await connection.execute(f"PRAGMA user_version = {sql.VERSION}")


async def one(connection: aiosqlite.Connection, query: str, *values: Any) -> Sequence[Any] | None:
    """The first row of one statement."""
    async with connection.execute(query, values) as cursor:
        return await cursor.fetchone()


async def fetch_all(
    connection: aiosqlite.Connection, query: str, *values: Any
) -> Iterable[Sequence[Any]]:
    """The rows of one statement."""
    return await connection.execute_fetchall(query, values)
