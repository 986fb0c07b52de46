"""The rows behind an async saver: the same sync access, on a thread of its own.

`async with arow_access(saver) as rows: await rows.run(lambda rows: rows.image("t"))`. What is done
with the rows is one function, run to its end beside the event loop; so there is one form of every
statement and every decision, and a transaction never waits in the middle for the loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from savermark.history.kinds import is_async_postgres, is_async_sqlite, unwrapped
from savermark.history.rows import RowAccess, row_access

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

T = TypeVar("T")
Runner = Callable[[Callable[[RowAccess], Any]], Awaitable[Any]]


class AsyncRows:
    """Runs functions of a `RowAccess` beside the event loop."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def run(self, work: Callable[[RowAccess], T]) -> T:
        """The result of `work`; what it raises comes out here."""
        result: T = await self._runner(work)
        return result


@asynccontextmanager
async def arow_access(saver: BaseCheckpointSaver[Any]) -> AsyncIterator[AsyncRows]:
    """The rows behind any saver that `rows.row_access` knows, or its async twin.

    An `AsyncPostgresSaver` and an `AsyncSqliteSaver` on a file are read over a connection opened
    for the block; one that lives in memory on its own, under the saver's lock.
    """
    saver = unwrapped(saver)
    if is_async_sqlite(saver):
        async with _sqlite(saver) as rows:
            yield rows
    elif is_async_postgres(saver):
        async with _postgres(saver) as rows:
            yield rows
    else:
        yield AsyncRows(_threaded(row_access(saver)))


def _threaded(rows: RowAccess) -> Runner:
    async def run(work: Callable[[RowAccess], Any]) -> Any:
        return await asyncio.to_thread(work, rows)

    return run


@asynccontextmanager
async def _sqlite(saver: AsyncSqliteSaver) -> AsyncIterator[AsyncRows]:
    from savermark.history.sqlite import SqliteRows

    await saver.setup()
    async with saver.lock, saver.conn.execute("PRAGMA database_list") as cursor:
        files = {row[1]: row[2] for row in await cursor.fetchall()}
    if not files["main"]:
        # No second connection reaches a database in memory, and this one belongs to the thread
        # that aiosqlite runs it on; sending a function there has no public name.
        rows = SqliteRows(saver.conn._conn, serde=saver.serde)

        async def run(work: Callable[[RowAccess], Any]) -> Any:
            async with saver.lock:
                return await saver.conn._execute(work, rows)  # type: ignore[no-untyped-call]

        yield AsyncRows(run)
        return
    connection = sqlite3.connect(files["main"], check_same_thread=False)
    try:
        yield AsyncRows(_threaded(SqliteRows(connection, serde=saver.serde)))
    finally:
        connection.close()


@asynccontextmanager
async def _postgres(saver: AsyncPostgresSaver) -> AsyncIterator[AsyncRows]:
    import psycopg
    from psycopg.conninfo import make_conninfo

    from savermark.history.postgres import PostgresRows

    if isinstance(saver.conn, psycopg.AsyncConnection):
        info = saver.conn.info
        target = make_conninfo(info.dsn, password=info.password or None)
    else:
        async with saver.conn.connection() as lent:
            target = make_conninfo(lent.info.dsn, password=lent.info.password or None)
    connection: psycopg.Connection[Any] = await asyncio.to_thread(
        lambda: psycopg.connect(target, autocommit=True)
    )
    try:
        yield AsyncRows(_threaded(PostgresRows(connection)))
    finally:
        await asyncio.to_thread(connection.close)
