"""The counts of one call in a steady state: warmed up, driver's side and server's side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from savermark.meter.around import ametered, metered, postgres_connection
from savermark.meter.counts import Counts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langgraph.checkpoint.base import BaseCheckpointSaver

#: Calls before the counted one. The server plans a prepared statement anew five times before it may
#: take to one plan for good, so counts are steady from the seventh call on.
WARMUP = 6


def count(
    saver: BaseCheckpointSaver[Any], call: Callable[[], object], warmup: int = WARMUP
) -> Counts:
    """What `call` costs on `saver` once it is warm.

    It must be one that can be repeated: it is made `warmup` times uncounted, once counted and, on
    Postgres, once more inside a transaction, in which the server's count of blocks is exact.
    """
    for _ in range(warmup):
        call()
    with metered(saver) as meter:
        call()
    connection = postgres_connection(saver)
    if connection is None:
        return meter.counts
    with connection.transaction():
        before = _only(connection.execute(_blocks()).fetchone())
        call()
        after = _only(connection.execute(_blocks()).fetchone())
    return replace(meter.counts, blocks=after - before)


async def acount(
    saver: BaseCheckpointSaver[Any], call: Callable[[], Awaitable[object]], warmup: int = WARMUP
) -> Counts:
    """The async twin of `count`."""
    for _ in range(warmup):
        await call()
    async with ametered(saver) as meter:
        await call()
    connection = postgres_connection(saver)
    if connection is None:
        return meter.counts
    async with connection.transaction():
        before = _only(await (await connection.execute(_blocks())).fetchone())
        await call()
        after = _only(await (await connection.execute(_blocks())).fetchone())
    return replace(meter.counts, blocks=after - before)


def _blocks() -> str:
    from savermark.meter.postgres import BLOCKS

    return BLOCKS


def _only(row: Any) -> int:
    """The one value of a row, whatever the connection's row factory makes of rows."""
    return int(next(iter(row.values())) if isinstance(row, dict) else row[0])
