"""The one-pass walk in Postgres: one statement on a thread without forks, one more with them.

What is asked and what the answers mean is in generators without a connection; `walk` and `awalk`
run them through the saver's own cursors, so its lock, pool and pipeline are used as it uses them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from savermark.history.walks import postgres_sql as sql
from savermark.history.walks.found import Trail, Where, Write

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

Loads = Callable[[tuple[str, bytes]], Any]
Query = tuple[str, dict[str, Any]]
Steps = Generator[Query, list[tuple[Any, ...]], Trail]

CHUNK = 10_000  # links of one statement

_ASK_EVERY = 8  # walks
# The walks of savers whose tables are small (see `postgres_sql.Tables`); 0 once they are large.
_walks: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


@dataclass
class _Chain:
    """One channel's chain as far as it is known: writes by run, the latest run first."""

    channel: str
    next: str | None = None
    runs: list[list[Write]] = field(default_factory=list)
    seed: tuple[Any, ...] = ()
    broken: str | None = None

    def end(self, told: list[Any], tag: str | None, blob: bytes | None, loads: Loads) -> None:
        """A run ended: at a stored value, a root, or a parent that must be looked for."""
        _, parent, _, valued, inline, *_ = told
        if tag is not None:  # before the inline value, which is only the mark of a snapshot then
            self.seed = (loads((tag, blob or b"")),)
        elif valued:
            self.seed = (inline,)
        self.next = None if self.seed else parent

    @property
    def history(self) -> DeltaChannelHistory:
        """The writes oldest first, and the seed."""
        writes = self.runs[0] if self.runs else []
        if len(self.runs) > 1:
            writes = [write for run in reversed(self.runs) for write in run]
        if self.seed:
            return {"writes": writes, "seed": self.seed[0]}
        return {"writes": writes}


def walk(saver: PostgresSaver, where: Where) -> Trail:
    """The histories of `where`. Raises `LineageError` for a chain that is a circle."""
    from psycopg.rows import tuple_row

    steps = _steps(where, saver.serde.loads_typed, saver)
    try:
        query = next(steps)
        while True:
            with saver._cursor() as cursor:
                cursor.row_factory = tuple_row  # type: ignore[assignment]
                rows: Any = cursor.execute(*query).fetchall()
            query = steps.send(rows)
    except StopIteration as done:
        found: Trail = done.value
        return found


async def awalk(saver: AsyncPostgresSaver, where: Where) -> Trail:
    """`walk` for the async saver."""
    from psycopg.rows import tuple_row

    steps = _steps(where, saver.serde.loads_typed, saver)
    try:
        query = next(steps)
        while True:
            async with saver._cursor() as cursor:
                cursor.row_factory = tuple_row  # type: ignore[assignment]
                await cursor.execute(*query)
                rows: Any = await cursor.fetchall()
            query = steps.send(rows)
    except StopIteration as done:
        found: Trail = done.value
        return found


def _steps(where: Where, loads: Loads, saver: Any) -> Steps:
    asked: dict[str, Any] = {"thread": str(where.thread), "space": where.space}
    chains = yield from _line(where, asked, loads, saver)
    left = [chain for chain in chains if chain.next]
    if left:
        left = yield from _runs(where, asked, left, loads)
    seen: dict[str, set[str]] = {chain.channel: set() for chain in left}
    while left:
        left = yield from _links(where, asked, left, loads, seen)
    return Trail(
        {chain.channel: chain.history for chain in chains},
        {chain.channel: chain.broken for chain in chains if chain.broken},
    )


def _tables(saver: Any) -> sql.Tables:
    walks = _walks.get(saver, 1)
    if not walks:
        return sql.Tables.LARGE
    _walks[saver] = walks + 1
    return sql.Tables.ASKED if walks % _ASK_EVERY == 1 else sql.Tables.SMALL


Part = Generator[Query, list[tuple[Any, ...]], list[_Chain]]


def _line(where: Where, asked: dict[str, Any], loads: Loads, saver: Any) -> Part:
    """All channels from the target down, as far as the chain is a line."""
    names, one = where.channels, len(where.channels) == 1
    more: dict[str, Any] = {"channel": names[0]} if one else {"channels": list(names)}
    if where.id is not None:
        more["id"] = where.id
    tables = _tables(saver)
    rows = yield sql.line(one=one, newest=where.id is None, tables=tables), asked | more
    chains = [_Chain(name) for name in names]
    if one:
        name = names[0]
        chains[0].runs.append([(t, name, loads((tag, b))) for n, t, tag, b in rows if n > 0])
    else:
        runs: list[list[Write]] = [[] for _ in names]
        for n, task, tag, blob in rows:
            if n > 0:
                runs[n - 1].append((task, names[n - 1], loads((tag, blob))))
        for chain, run in zip(chains, runs, strict=True):
            chain.runs.append(run)
    # The ends of the runs come last, one a channel; an unknown target has none.
    for n, text, tag, blob in rows[-len(names) :]:
        if n < 0:
            told = json.loads(text)
            if told[2] == 1:  # the target itself: its values are not asked for
                tag, told[3] = None, False
            chains[-n - 1].end(told, tag, blob, loads)
            if not told[5]:
                _walks[saver] = 0
    return chains


def _runs(where: Where, asked: dict[str, Any], left: list[_Chain], loads: Loads) -> Part:
    """Further runs of the chains that have not ended; returns those that still have not."""
    starts = {chain.channel: {chain.next} for chain in left}
    rows = yield sql.RUNS, asked | _starts(left)
    runs: dict[tuple[int, int], list[Write]] = {}
    ends: list[tuple[Any, ...]] = []
    for n, turn, first, tag, blob in rows:
        if n > 0:
            name = left[n - 1].channel
            runs.setdefault((n, turn), []).append((first, name, loads((tag, blob))))
        else:
            ends.append((turn, -n, json.loads(first), tag, blob))
    for turn, n, told, tag, blob in sorted(ends, key=lambda end: end[:2]):
        chain = left[n - 1]
        chain.runs.append(runs.get((n, turn), []))
        chain.end(told, tag, blob, loads)
        if chain.next in starts[chain.channel]:
            raise where.circle(told[0])
        starts[chain.channel].add(chain.next)
    return [chain for chain in left if chain.next]


def _links(
    where: Where,
    asked: dict[str, Any],
    left: list[_Chain],
    loads: Loads,
    seen: dict[str, set[str]],
) -> Part:
    """Single links of the chains that have not ended; returns those that still have not."""
    rows = yield sql.LINKS, {**asked, **_starts(left), "chunk": CHUNK}
    writes: dict[int, dict[str, list[tuple[Any, ...]]]] = {}
    ends: list[tuple[Any, ...]] = []
    for n, at, path, task, idx, tag, blob in rows:
        if n > 0:
            kept = writes.setdefault(n, {}).setdefault(at, [])
            kept.append((path, task, idx, tag, blob))
        else:
            ends.append((-n, json.loads(at or "[]"), json.loads(task), tag, blob))
    for n, ids, told, tag, blob in ends:
        chain, owned = left[n - 1], writes.get(n, {})
        if not ids:
            chain.broken, chain.next = chain.next, None
            continue
        known = seen[chain.channel]
        for name in ids:
            if name in known:
                raise where.circle(name)
            known.add(name)
        chain.runs.append(
            [
                (task, chain.channel, loads((tag, blob)))
                for name in reversed(ids)
                for _, task, _, tag, blob in sorted(owned.get(name, ()), key=_order)
            ]
        )
        before = chain.next
        chain.end(told, tag, blob, loads)
        if chain.next and len(ids) < CHUNK and chain.next != before:
            chain.broken, chain.next = chain.next, None
    return [chain for chain in left if chain.next]


def _order(write: tuple[Any, ...]) -> tuple[Any, ...]:
    return write[:3]


def _starts(left: list[_Chain]) -> dict[str, Any]:
    return {"channels": [c.channel for c in left], "starts": [c.next for c in left]}
