"""The floor of a walk: exactly the needed rows, by key, in one prepared statement; each value once.

It is told what to fetch, so what a walk takes beyond it is what finding the rows costs. It is no
bound: a walk that reads a range can fetch the same rows faster than by key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from savermark.errors import Unsupported
from savermark.history.kinds import (
    is_async_postgres,
    is_memory,
    is_sqlite,
    is_sync_postgres,
)
from savermark.walking.rows import PROBE, channels, checkpoint_id, snapshot_places, version

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.spec import WalkSpec

TASK = "{:08x}-0000-5000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class Need:
    """What a walk of one channel from the head needs: its writes on a range, and its seed."""

    channel: str
    index: int  # of its write among those of a task
    first: int
    head: int
    seed: int | None

    @property
    def ids(self) -> list[str]:
        """The checkpoints whose writes are needed."""
        return [checkpoint_id(number) for number in range(self.first, self.head)]


def needs(spec: WalkSpec) -> list[Need]:
    """The needs of every channel of the spec."""
    found = []
    for index, name in enumerate(channels(spec)):
        places = snapshot_places(spec, index)
        seed = places[-1] if places else None
        found.append(Need(name, index, seed or 0, spec.thread.depth - 1, seed))
    return found


class Floor(Protocol):
    """Fetches and builds every needed value."""

    def values(self, saver: BaseCheckpointSaver[Any]) -> list[Any]:
        """All values, in any order."""
        ...

    async def avalues(self, saver: BaseCheckpointSaver[Any]) -> list[Any]:
        """`values` for an async saver."""
        ...


def floor_of(saver: BaseCheckpointSaver[Any], spec: WalkSpec) -> Floor:
    """The floor on this saver. Raises `Unsupported` for one whose tables are not known."""
    wanted = needs(spec)
    if is_memory(saver):
        return _MemoryFloor(wanted)
    if is_sqlite(saver):
        return _SqliteFloor(wanted)
    if is_sync_postgres(saver) or is_async_postgres(saver):
        return _PostgresFloor(wanted)
    raise Unsupported(f"the tables of a {type(saver).__name__} are not known: it has no floor")


@dataclass(slots=True)
class _MemoryFloor:
    needs: list[Need]

    def values(self, saver: Any) -> list[Any]:
        loads, writes, blobs = saver.serde.loads_typed, saver.writes, saver.blobs
        found = []
        for need in self.needs:
            for number in range(need.first, need.head):
                held = writes[PROBE, "", checkpoint_id(number)]
                found.append(loads(held[TASK.format(number), need.index][2]))
            if need.seed is not None:
                found.append(loads(blobs[PROBE, "", need.channel, version(need.seed)]))
        return found

    async def avalues(self, saver: Any) -> list[Any]:
        return self.values(saver)


@dataclass(slots=True)
class _SqliteFloor:
    """The keys are bound as two lists in JSON, in order; each row is looked up by primary key."""

    needs: list[Need]
    _parameters: tuple[str, ...] = field(default=(), init=False)
    _SQL = (
        "SELECT w.type, w.value FROM json_each(?) k CROSS JOIN writes w WHERE w.thread_id = ? "
        "AND w.checkpoint_ns = '' AND w.checkpoint_id = json_extract(k.value, '$[0]') "
        "AND w.task_id = json_extract(k.value, '$[1]') AND w.idx = json_extract(k.value, '$[2]') "
        "UNION ALL SELECT c.type, c.checkpoint FROM json_each(?) k CROSS JOIN checkpoints c "
        "WHERE c.thread_id = ? AND c.checkpoint_ns = '' AND c.checkpoint_id = k.value"
    )

    def __post_init__(self) -> None:
        keys = [
            (checkpoint_id(number), TASK.format(number), need.index)
            for need in self.needs
            for number in range(need.first, need.head)
        ]
        seeds = sorted({need.seed for need in self.needs if need.seed is not None})
        held = [checkpoint_id(seed) for seed in seeds]
        self._parameters = (json.dumps(keys), PROBE, json.dumps(held), PROBE)

    def values(self, saver: Any) -> list[Any]:
        return self._built(saver, saver.conn.execute(self._SQL, self._parameters).fetchall())

    async def avalues(self, saver: Any) -> list[Any]:
        return self._built(saver, await saver.conn.execute_fetchall(self._SQL, self._parameters))

    def _built(self, saver: Any, rows: Any) -> list[Any]:
        """A snapshot is inside its checkpoint here, so that one is a needed value."""
        loads = saver.serde.loads_typed
        found = [loads(row) for row in rows]
        split = sum(need.head - need.first for need in self.needs)
        seeds = {seed["id"]: seed["channel_values"] for seed in found[split:]}
        return found[:split] + [
            seeds[checkpoint_id(need.seed)][need.channel]
            for need in self.needs
            if need.seed is not None
        ]


@dataclass(slots=True)
class _PostgresFloor:
    """One statement, a branch for each channel's writes and for each seed."""

    needs: list[Need]
    _sql: str = field(default="", init=False)
    _parameters: list[Any] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        parts = []
        for need in self.needs:
            parts.append(
                "(SELECT type, blob FROM checkpoint_writes WHERE thread_id = %s "
                "AND checkpoint_ns = '' AND checkpoint_id = ANY(%s) AND channel = %s)"
            )
            self._parameters += [PROBE, need.ids, need.channel]
            if need.seed is not None:
                parts.append(
                    "(SELECT type, blob FROM checkpoint_blobs WHERE thread_id = %s "
                    "AND checkpoint_ns = '' AND channel = %s AND version = %s)"
                )
                self._parameters += [PROBE, need.channel, version(need.seed)]
        self._sql = " UNION ALL ".join(parts)

    def values(self, saver: Any) -> list[Any]:
        from psycopg.rows import tuple_row

        loads = saver.serde.loads_typed
        with saver.conn.cursor(binary=True, row_factory=tuple_row) as cursor:
            rows = cursor.execute(self._sql, self._parameters, prepare=True).fetchall()
        return [loads(row) for row in rows]

    async def avalues(self, saver: Any) -> list[Any]:
        from psycopg.rows import tuple_row

        loads = saver.serde.loads_typed
        async with saver.conn.cursor(binary=True, row_factory=tuple_row) as cursor:
            await cursor.execute(self._sql, self._parameters, prepare=True)
            rows = await cursor.fetchall()
        return [loads(row) for row in rows]
