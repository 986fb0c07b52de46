"""What a database holds: totals, the largest threads, heads, ages, growth, and what nobody needs.

Three numbers are never mixed: *logical* bytes are payloads as serialized, *stored* bytes what the
engine keeps of them, and the *footprint* is the size of the whole store with its free space.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from savermark.database.ages import Calendar
from savermark.database.links import Head, head_of
from savermark.retention.age import age_of
from savermark.storage import TABLES, Table

if TYPE_CHECKING:
    from savermark.database.base import Database, Facts, Orphan, Reading, Space
    from savermark.storage import FootprintRow, StorageRow

GRACE = timedelta(hours=1)  # the writes of a checkpoint may be stored before the checkpoint is
TOP = 20


@dataclass(frozen=True, slots=True)
class Size:
    """Rows and bytes; `stored_bytes` is what the engine keeps of the logical ones."""

    rows: int = 0
    logical_bytes: int = 0
    stored_bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(
            self.rows + other.rows,
            self.logical_bytes + other.logical_bytes,
            self.stored_bytes + other.stored_bytes,
        )


@dataclass(frozen=True, slots=True)
class Made:
    """Checkpoints, and the bytes the engine keeps of their rows (not of their writes and blobs)."""

    checkpoints: int = 0
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ThreadSize:
    """One thread: its rows and bytes by table, and its namespaces."""

    thread_id: str
    tables: dict[Table, Size]
    namespaces: int

    @property
    def total(self) -> Size:
        """All tables together."""
        return sum(self.tables.values(), Size())


@dataclass(frozen=True, slots=True)
class Loss:
    """Orphan rows of one table: those old enough to be garbage, and those that may not be.

    `young` rows may belong to a checkpoint that is not committed yet; the age of `undated` ones is
    unknown, as of every blob.
    """

    table: Table
    old: Size = field(default_factory=Size)
    young: Size = field(default_factory=Size)
    undated: Size = field(default_factory=Size)
    threads: int = 0
    example: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What `inspect` found. Bytes are decimal, times in UTC.

    `threads` are the largest, `heads` those a read must walk farthest from; both are cut at the
    number asked for. `dead` are namespaces of subgraph calls whose calling checkpoint is gone.
    """

    facts: Facts
    at: datetime
    tables: dict[Table, Size]
    thread_count: int
    channels: dict[tuple[Table, str], Size]
    threads: tuple[ThreadSize, ...]
    heads: tuple[Head, ...]
    head_count: int
    depths: dict[int, int]  # number of heads by depth, in powers of two: the upper end
    ages: dict[str, Made]
    idle: dict[str, int]  # threads by the age of their newest checkpoint
    days: dict[date, Made]
    losses: tuple[Loss, ...]
    dead: Made
    dead_namespaces: int
    footprint: tuple[FootprintRow, ...]
    dead_rows: Mapping[Table, tuple[int, int]]  # live and dead, as the engine estimates
    values: dict[str, Size] | None = None  # inside checkpoints, by channel; None when not asked

    @property
    def total(self) -> Size:
        """All tables together."""
        return sum(self.tables.values(), Size())


def inspect(
    database: Database,
    *,
    threads: Sequence[str] | None = None,
    top: int = TOP,
    grace: timedelta = GRACE,
    channels: bool = False,
    now: datetime | None = None,
) -> Inspection:
    """Look at a database, or at some of its threads, without changing it.

    The number of statements is fixed, and memory does not grow with the threads; `top` 0 lists
    every thread and head, and then it does. `channels` opens every checkpoint for the sizes of the
    values inside.
    """
    now = now or datetime.now(UTC)
    with database.reading() as reading:
        sizes = _Sizes(top)
        sizes.take(reading.storage(threads))
        shapes = _Shapes(top, now)
        shapes.take(reading.spaces(threads))
        losses = losses_of(reading.orphans(threads), now, grace)
        values = _values(reading, threads) if channels else None
    return Inspection(
        facts=database.facts,
        at=now,
        tables=sizes.tables,
        thread_count=sizes.threads,
        channels=dict(sorted(sizes.channels.items(), key=lambda item: -item[1].logical_bytes)),
        threads=sizes.largest(),
        heads=shapes.farthest(),
        head_count=shapes.heads,
        depths=dict(sorted(shapes.depths.items())),
        ages=_made(shapes.calendar.ages()),
        idle=shapes.calendar.idle(),
        days=_made(shapes.calendar.days()),
        losses=losses,
        dead=shapes.dead,
        dead_namespaces=shapes.dead_namespaces,
        footprint=tuple(database.footprint()),
        dead_rows=database.dead_rows(),
        values=values,
    )


T = TypeVar("T")


class Largest(Generic[T]):
    """The greatest items by a key, as many as asked for, the first seen first; 0 is all."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._items: list[tuple[tuple[int, ...], int, T]] = []
        self._seen = 0

    def offer(self, key: tuple[int, ...], item: T) -> None:
        """Take an item in, and let the least one go."""
        self._seen += 1
        entry = (key, -self._seen, item)
        if not self._top or len(self._items) < self._top:
            heapq.heappush(self._items, entry)
        elif entry > self._items[0]:
            heapq.heapreplace(self._items, entry)

    def listed(self) -> tuple[T, ...]:
        """The greatest first."""
        return tuple(item for _, _, item in sorted(self._items, key=itemgetter(0, 1), reverse=True))


class _Sizes:
    """Sums the rows of `Reading.storage`, one thread at a time."""

    def __init__(self, top: int) -> None:
        self.tables: dict[Table, Size] = {table: Size() for table in TABLES}
        self.channels: dict[tuple[Table, str], Size] = {}
        self.threads = 0
        self._largest = Largest[ThreadSize](top)

    def take(self, rows: Iterable[StorageRow]) -> None:
        """Read a pass to its end."""
        for thread, group in groupby(rows, attrgetter("thread_id")):
            held: dict[Table, Size] = {}
            spaces = set()
            for row in group:
                table = cast("Table", row.table)
                size = Size(row.rows, row.logical_bytes, row.stored_bytes or 0)
                held[table] = held.get(table, Size()) + size
                spaces.add(row.checkpoint_ns)
                if row.channel is not None:
                    key = (table, row.channel)
                    self.channels[key] = self.channels.get(key, Size()) + size
            for table, size in held.items():
                self.tables[table] += size
            self.threads += 1
            found = ThreadSize(thread, held, len(spaces))
            total = found.total
            self._largest.offer((total.logical_bytes, total.rows), found)

    def largest(self) -> tuple[ThreadSize, ...]:
        """The threads with the most logical bytes."""
        return self._largest.listed()


class _Shapes:
    """Follows the links of every namespace, one thread at a time."""

    def __init__(self, top: int, now: datetime) -> None:
        self.calendar = Calendar(now)
        self.heads = 0
        self.depths: Counter[int] = Counter()
        self.dead = Made()
        self.dead_namespaces = 0
        self._farthest = Largest[Head](top)

    def take(self, spaces: Iterable[Space]) -> None:
        """Read a pass to its end."""
        for _, group in groupby(spaces, attrgetter("thread_id")):
            newest, roots, calls = "", frozenset[str](), list[tuple[str, Made]]()
            for space in group:
                self._head(space)
                newest = max(newest, space.head_id)
                if not space.checkpoint_ns:
                    roots = frozenset(space.links)
                elif (caller := caller_of(space)) is not None:
                    held = sum(size for _, size in space.links.values())
                    calls.append((caller, Made(len(space.links), held)))
            self.calendar.add_thread(newest)
            for caller, size in calls:
                if caller not in roots:
                    self.dead_namespaces += 1
                    self.dead = Made(
                        self.dead.checkpoints + size.checkpoints,
                        self.dead.stored_bytes + size.stored_bytes,
                    )

    def _head(self, space: Space) -> None:
        head = head_of(space)
        self.heads += 1
        self.depths[0 if not head.depth else 1 << (head.depth - 1).bit_length()] += 1
        self._farthest.offer((-1 if head.distance is None else head.distance, head.depth), head)
        self.calendar.add(space.links)

    def farthest(self) -> tuple[Head, ...]:
        """The heads that a read must walk farthest from."""
        return self._farthest.listed()


def caller_of(space: Space) -> str | None:
    """The root checkpoint whose task made the namespace of one subgraph call; None for others."""
    caller = space.parents.get("") if ":" in space.checkpoint_ns else None
    return caller if isinstance(caller, str) else None


def losses_of(orphans: Iterable[Orphan], now: datetime, grace: timedelta) -> tuple[Loss, ...]:
    """The orphans summed up by table; read to their end."""
    found = []
    for table, rows in groupby(orphans, attrgetter("table")):
        sums: dict[str, Size] = {}
        threads, most, example = 0, 0, ""
        for thread, group in groupby(rows, attrgetter("thread_id")):
            lost = 0
            for orphan in group:
                age = None if orphan.checkpoint_id is None else age_of(orphan.checkpoint_id, now)
                kind = "undated" if age is None else "old" if age > grace else "young"
                sums[kind] = sums.get(kind, Size()) + Size(orphan.rows, orphan.logical_bytes)
                lost += orphan.rows
            threads += 1
            if lost > most:
                most, example = lost, thread
        found.append(Loss(table, **sums, threads=threads, example=example))
    return tuple(found)


def _values(reading: Reading, threads: Sequence[str] | None) -> dict[str, Size]:
    found = {name: Size(rows, size) for name, rows, size in reading.values(threads)}
    return dict(sorted(found.items(), key=lambda item: -item[1].logical_bytes))


def _made(pairs: Mapping[T, tuple[int, int]]) -> dict[T, Made]:
    return {key: Made(*pair) for key, pair in pairs.items()}
