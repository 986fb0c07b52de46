"""The one-pass walk in Postgres: one statement on a thread without forks, one more with them.

What is asked and what the answers mean is in generators without a connection; `walk` and `awalk`
run them through the saver's own cursors, so its lock, pool and pipeline are used as it uses them.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg import Connection, capabilities
from psycopg.rows import tuple_row

from savermark.history.walks import postgres_sql as sql
from savermark.history.walks.found import Trail, Where, Write
from savermark.history.walks.postgres_plans import Loads, Plans, Query, Rows, plans_of
from savermark.history.walks.postgres_window import windowed

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

Steps = Generator[Query, Any, Trail]

CHUNK = 10_000  # links of one statement
_STREAMED = 50  # rows in a piece of an answer


@dataclass
class _Chain:
    """One channel's chain as far as it is known: writes by run, the latest run first."""

    channel: str
    next: str | None = None
    runs: list[list[Write]] = field(default_factory=list)
    seed: tuple[Any, ...] = ()
    broken: str | None = None

    def run(self, rows: Rows, ids: str | None, loads: Loads) -> None:
        """The writes of the next run, those of its checkpoints only."""
        own = set(json.loads(ids or "[]"))
        if not own.issuperset([row[1] for row in rows]):
            rows = [row for row in rows if row[1] in own]
        name = self.channel
        self.runs.append([(task, name, loads((tag, blob))) for _, _, task, tag, blob in rows])

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
    steps = _steps(where, saver.serde.loads_typed, saver)
    try:
        query = next(steps)
        while True:
            query = _answered(saver, query, steps)
    except StopIteration as done:
        found: Trail = done.value
        return found


def _answered(saver: PostgresSaver, query: Query, steps: Steps) -> Query:
    """Ask a statement through the saver's own cursor and send its rows; what is asked next."""
    connection: Any = saver.conn
    rows: Any
    if saver.pipe is None and isinstance(connection, Connection) and _lends_plainly(saver):
        # What its `_cursor` does, too, in two context managers more: a tenth of a short walk.
        with saver.lock, connection.cursor(binary=True, row_factory=tuple_row) as plain:
            if query.stream and _streams(saver):
                rows = plain.stream(query.text, query.values, size=_STREAMED)
                # It holds the connection's lock, and an exception keeps the frames that know it.
                with closing(rows):
                    return steps.send(rows)
            rows = plain.execute(query.text, query.values).fetchall()
    else:
        with saver._cursor() as cursor:
            cursor.row_factory = tuple_row  # type: ignore[assignment]
            rows = cursor.execute(query.text, query.values).fetchall()
    return steps.send(rows)


def _streams(saver: Any) -> bool:
    """Whether values may be built while rows arrive.

    Nobody else has the connection meanwhile: a serializer of the application's own might want it.
    """
    plain = type(saver.serde) is JsonPlusSerializer and capabilities.has_stream_chunked()
    return plain and not saver.conn.pgconn.pipeline_status


def _lends_plainly(saver: PostgresSaver) -> bool:
    """Whether nobody has put a `_cursor` of their own into the class or the object."""
    return type(saver)._cursor is PostgresSaver._cursor and "_cursor" not in vars(saver)


async def awalk(saver: AsyncPostgresSaver, where: Where) -> Trail:
    """`walk` for the async saver."""
    steps = _steps(where, saver.serde.loads_typed, saver)
    try:
        query = next(steps)
        while True:
            async with saver._cursor() as cursor:
                cursor.row_factory = tuple_row  # type: ignore[assignment]
                await cursor.execute(query.text, query.values)
                rows: Any = await cursor.fetchall()
            query = steps.send(rows)
    except StopIteration as done:
        found: Trail = done.value
        return found


def _steps(where: Where, loads: Loads, saver: Any) -> Steps:
    asked: dict[str, Any] = {"thread": str(where.thread), "space": where.space}
    plans = plans_of(saver)
    if len(where.channels) == 1 and (window := plans.windows.get(where.channels[0])):
        found = yield from windowed(where, asked, loads, plans, window)
        if found is not None:
            return Trail({where.channels[0]: found})
    chains = yield from _line(where, asked, loads, plans)
    left = [chain for chain in chains if chain.next]
    if left:
        left = yield from _runs(where, asked, left, loads, plans)
    seen: dict[str, set[str]] = {chain.channel: set() for chain in left}
    while left:
        left = yield from _links(where, asked, left, loads, plans, seen)
    return Trail(
        {chain.channel: chain.history for chain in chains},
        {chain.channel: chain.broken for chain in chains if chain.broken},
    )


Part = Generator[Query, Rows, list[_Chain]]


def _line(where: Where, asked: dict[str, Any], loads: Loads, plans: Plans) -> Part:
    """All channels from the target down, as far as the chain is a line."""
    names, one, newest = where.channels, len(where.channels) == 1, where.id is None
    more: dict[str, Any] = {"channel": names[0]} if one else {"channels": list(names)}
    if not newest:
        more["id"] = where.id
    while True:
        paths = plans.parallel
        more["ask"] = plans.ask()
        statement = sql.line(one=one, newest=newest, paths=paths)
        rows = yield Query(sql.text(statement, plans.grown), asked | more)
        # The ends of the runs come last, one a channel; an unknown target has none.
        ends = [rows.pop() for _ in names if rows and rows[-1][0] < 0]
        writes = _by(rows, len(names))
        if paths or not any(map(_several_tasks, writes)):
            break
        plans.parallel = True
    chains = [_Chain(name) for name in names]
    for n, text, ids, tag, blob in ends:
        told, chain = json.loads(text), chains[-n - 1]
        if told[2] == 1:  # the target itself: its values are not asked for
            tag, told[3] = None, False
        chain.run(writes[-n - 1], ids, loads)
        chain.end(told, tag, blob, loads)
        plans.told(told[5])
        if tag is not None:
            plans.seeded.add(chain.channel)
        if one and not chain.next:
            plans.covers(chain.channel, told[2], root=not chain.seed)
    return chains


def _by(rows: Rows, count: int) -> list[Rows]:
    """The rows of each channel, by its number in front."""
    if count == 1:
        return [rows]
    found: list[Rows] = [[] for _ in range(count)]
    for row in rows:
        found[row[0] - 1].append(row)
    return found


def _several_tasks(rows: Rows) -> bool:
    """Whether some checkpoint has writes of more than one task."""
    names = {row[1] for row in rows}
    return len(names) < len(rows) and len({row[1:3] for row in rows}) > len(names)


def _runs(
    where: Where, asked: dict[str, Any], left: list[_Chain], loads: Loads, plans: Plans
) -> Part:
    """Further runs of the chains that have not ended; returns those that still have not."""
    starts = {chain.channel: {chain.next} for chain in left}
    while True:
        paths = plans.parallel
        rows = yield Query(sql.text(sql.runs(paths=paths), plans.grown), asked | _starts(left))
        runs: dict[tuple[int, int], Rows] = {}
        for row in rows:
            runs.setdefault(row[:2], []).append(row[1:])
        ends = [(key[0], *runs.pop(key)[0]) for key in sorted(runs) if key[0] < 0]
        if paths or not any(map(_several_tasks, runs.values())):
            break
        plans.parallel = True
    for n, turn, text, ids, tag, blob in ends:
        told, chain = json.loads(text), left[-n - 1]
        chain.run(runs.get((-n, turn), []), ids, loads)
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
    plans: Plans,
    seen: dict[str, set[str]],
) -> Part:
    """Single links of the chains that have not ended; returns those that still have not."""
    asked = {**asked, **_starts(left), "chunk": CHUNK}
    rows = yield Query(sql.text(sql.LINKS, plans.grown), asked)
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
