"""A meter around a block: one driver for each api, which differ by `await` alone.

Which engine is counted follows from the saver's connection, so any saver on a connection of
`sqlite3`, `aiosqlite` or `psycopg` can be metered, whoever wrote it. Of a saver on a pool, and of
one without a connection, only the values that it deserializes are counted.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from savermark.meter.counts import Counts, Meter
from savermark.meter.sqlite import EVERY, SqliteProbe
from savermark.meter.values import Tally, counting_serde

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver


@contextmanager
def metered(saver: BaseCheckpointSaver[Any]) -> Iterator[Meter]:
    """Count what is done through `saver` inside the block; `meter.counts` holds it afterwards.

    Everything but Postgres blocks is counted (`count` does those, too). The saver is as before
    when the block is left, however. A trace or progress callback of the user's own is lost:
    SQLite has one of each and does not tell it.
    """
    meter, connection = Meter(), _connection(saver)
    with _values(saver) as tally:
        if isinstance(connection, sqlite3.Connection):
            probe = SqliteProbe(connection)
            connection.set_trace_callback(probe.statement)
            connection.set_progress_handler(probe.step, EVERY)
            probe.start()
            try:
                yield meter
            finally:
                meter.counts = probe.stop()
                connection.set_trace_callback(None)
                connection.set_progress_handler(None, EVERY)
        else:
            with _traced(saver, meter):
                yield meter
    meter.counts = _with_values(meter.counts, tally)


@asynccontextmanager
async def ametered(saver: BaseCheckpointSaver[Any]) -> AsyncIterator[Meter]:
    """The async twin of `metered`."""
    meter, connection = Meter(), _connection(saver)
    with _values(saver) as tally:
        if (inner := _of_aiosqlite(connection)) is not None:
            probe = SqliteProbe(inner)
            await connection.set_trace_callback(probe.statement)
            await connection.set_progress_handler(probe.step, EVERY)
            probe.start()
            try:
                yield meter
            finally:
                meter.counts = probe.stop()
                await connection.set_trace_callback(None)
                await connection.set_progress_handler(None, EVERY)
        else:
            with _traced(saver, meter):
                yield meter
    meter.counts = _with_values(meter.counts, tally)


def _connection(saver: BaseCheckpointSaver[Any]) -> Any:
    return getattr(saver, "conn", None)


def _of_aiosqlite(connection: Any) -> sqlite3.Connection | None:
    module = sys.modules.get("aiosqlite")
    if module is None or not isinstance(connection, module.Connection):
        return None
    inner: sqlite3.Connection = connection._conn
    return inner


def postgres_connection(saver: BaseCheckpointSaver[Any]) -> Any | None:
    """The saver's one psycopg connection, sync or async; None where it has none."""
    connection, module = _connection(saver), sys.modules.get("psycopg")
    if module is None or not isinstance(connection, module.Connection | module.AsyncConnection):
        return None
    return connection


@contextmanager
def _traced(saver: BaseCheckpointSaver[Any], meter: Meter) -> Iterator[None]:
    """Count the messages of a psycopg connection; nothing on any other."""
    connection = postgres_connection(saver)
    if connection is None:
        yield
        return
    from savermark.meter.postgres import Trace

    trace = Trace(connection)
    trace.start()
    try:
        yield
    finally:
        meter.counts = trace.stop()


@contextmanager
def _values(saver: BaseCheckpointSaver[Any]) -> Iterator[Tally | None]:
    """Count what the saver's serializer loads; None where it cannot be made to count."""
    tally, serde = Tally(), saver.serde
    counting = counting_serde(serde, tally)
    if counting is None:
        yield None
        return
    saver.serde = counting
    try:
        yield tally
    finally:
        saver.serde = serde


def _with_values(counts: Counts, tally: Tally | None) -> Counts:
    if tally is None:
        return counts
    return Counts(values=tally.values, value_bytes=tally.value_bytes).over(counts)
