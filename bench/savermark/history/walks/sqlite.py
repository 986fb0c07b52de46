"""The one-pass walk in SQLite: a scan down the primary key, then one range of writes.

The scan follows the parent links: checkpoints of other branches are passed over, a few in a row,
and where the parent is farther or above, the scan starts again at the parent. So a thread without
forks takes two statements, and every other one a statement more for each jump, and one for the
writes behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from savermark.history.walks import peek
from savermark.history.walks.found import Trail, Where, Write

if TYPE_CHECKING:
    import sqlite3

    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

_LARGE = 4_096  # bytes from which on a checkpoint lies on many pages: opened, and not read
_FOREIGN = 3  # checkpoints of other branches in a row before the scan starts again
_NAMES = 400  # channels in one statement: the first SQLite builds take 999 parameters

_SCAN = (
    "SELECT checkpoint_id, parent_checkpoint_id, type, {} FROM main.checkpoints "
    "WHERE thread_id = ? AND checkpoint_ns = ?{} ORDER BY checkpoint_id DESC"
)
_NEWEST = _SCAN.format("checkpoint", "")
_FROM = _SCAN.format("checkpoint", " AND checkpoint_id <= ?")
_BLOBS_FROM = _SCAN.format("rowid", " AND checkpoint_id <= ?")
_WRITES = (
    "SELECT {columns} FROM main.writes WHERE thread_id = ? AND checkpoint_ns = ? "
    "AND checkpoint_id >= ? AND checkpoint_id <= ? AND {channels} ORDER BY checkpoint_id, {order}"
)
_BY_KEY, _BY_PATH = "task_id, idx", "task_path, task_id, idx"

Row = tuple[Any, ...]

# Savers in which several tasks wrote one channel on one checkpoint. Only there the order of the
# key, which costs nothing, may not be the order of the paths.
_parallel: WeakSet[Any] = WeakSet()


@dataclass
class _Chain:
    """The checkpoints passed, newest first, and where on them each channel's seed lies.

    `runs` are the places at which a new descent begins. `depth` is a channel's number of
    checkpoints, seed included.
    """

    ids: list[str] = field(default_factory=list)
    runs: list[int] = field(default_factory=lambda: [0])
    seeds: dict[str, Any] = field(default_factory=dict)
    depth: dict[str, int] = field(default_factory=dict)
    missing: str | None = None


def walk(saver: SqliteSaver, where: Where) -> Trail:
    """The histories of `where`. Raises `LineageError` for a chain that is a circle."""
    with saver.cursor(transaction=False) as cursor:
        chain, rows = _read(cursor, saver, where)
    return _built(chain, rows, where, saver.serde.loads_typed)


async def awalk(saver: AsyncSqliteSaver, where: Where) -> Trail:
    """`walk` for the async saver: all reading is one job on the connection's own thread."""
    await saver.setup()

    def job() -> tuple[_Chain, list[Row]]:
        cursor = saver.conn._conn.cursor()
        try:
            return _read(cursor, saver, where)
        finally:
            cursor.close()

    async with saver.lock:
        # Sending a function to that thread has no public name.
        chain, rows = await saver.conn._execute(job)  # type: ignore[no-untyped-call]
    return _built(chain, rows, where, saver.serde.loads_typed)


def _read(cursor: sqlite3.Cursor, saver: Any, where: Where) -> tuple[_Chain, list[Row]]:
    chain = _Descent(cursor, where, saver.serde).chain()
    return chain, _fetch(cursor, saver, where, chain)


class _Descent:
    """The way down the parent links until every channel has its seed."""

    def __init__(self, cursor: sqlite3.Cursor, where: Where, serde: SerializerProtocol) -> None:
        self._cursor, self._where, self._serde = cursor, where, serde
        self._place = (str(where.thread), where.space)
        self._found = _Chain()
        self._left = list(where.channels)
        self._values = peek.Values(where.channels)
        self._peek = peek.readable(serde)
        self._blobs = False  # checkpoints are large here

    def chain(self) -> _Chain:
        """Follow it from the target's parent."""
        found, target = self._found, self._where.id
        rows = self._from(target)
        first = rows.fetchone()
        if first is None or (target and first[0] != target):
            return found
        at, want = first[:2]
        passed: set[str] = set()  # what lies behind, once the way has led up
        fresh = False
        while True:
            before, blobs = len(found.ids), self._blobs
            want = self._down(rows, want) if want else None
            for name in found.ids[before:] if passed else ():
                if name in passed:
                    raise self._where.circle(name)
                passed.add(name)
            if not want or not self._left:
                break
            if fresh and len(found.ids) == before:
                found.missing = want
                break
            at = found.ids[-1] if found.ids else at
            if want >= at and not passed:
                passed = {first[0], *found.ids}
            if want >= at or blobs is self._blobs:  # else only their size made the scan start again
                found.runs.append(len(found.ids))
            rows, fresh = self._from(want), True
        found.depth |= dict.fromkeys(self._left, len(found.ids))
        return found

    def _from(self, name: str | None) -> sqlite3.Cursor:
        if name is None:
            return self._cursor.execute(_NEWEST, self._place)
        text = _BLOBS_FROM if self._blobs else _FROM
        return self._cursor.execute(text, (*self._place, name))

    def _down(self, rows: sqlite3.Cursor, want: str | None) -> str | None:
        """As far as the scan meets the parents; the parent that it did not meet."""
        add, values, blobs, foreign = self._found.ids.append, self._values, self._blobs, 0
        without, at, mark, within = values.without, values.at, peek.VALUES, peek.WITHIN
        for name, parent, tag, data in rows:
            if name == want:
                add(name)
                want, foreign = parent, 0
                # The same bytes as in one that was looked through are of the same type.
                if blobs or data.find(mark, 0, within) != at or not data.startswith(without, at):
                    self._look(tag, data)
                    if not self._left or blobs is not self._blobs:
                        break
                    without, at = values.without, values.at
                if not want:
                    break
            elif name < want or foreign == _FOREIGN:
                break
            else:
                foreign += 1
        return want

    def _look(self, tag: str, data: Any) -> None:
        """Take what the latest checkpoint values of the channels that are left."""
        known = self._peek and tag == "msgpack"
        if self._blobs:
            table, column = "checkpoints", "checkpoint"
            with self._cursor.connection.blobopen(table, column, data, readonly=True) as blob:
                if known and not self._values.may_in(blob):
                    return
                blob.seek(0)
                data = blob.read()
        elif known:
            self._blobs = len(data) > _LARGE
            if not self._values.may(data):
                return
        held = self._serde.loads_typed((tag, data)).get("channel_values") or {}
        for name in [name for name in self._left if name in held]:
            self._found.seeds[name] = held[name]
            self._found.depth[name] = len(self._found.ids)
            self._left.remove(name)
            self._values.drop(name)


def _fetch(cursor: sqlite3.Cursor, saver: Any, where: Where, chain: _Chain) -> list[Row]:
    """The writes of the chain by run, in order within a checkpoint; (id, task, channel if several,
    type, value).
    """
    paths = getattr(saver, "_has_task_path", True)
    channel = "channel, " if len(where.channels) > 1 else ""
    columns = f"checkpoint_id, task_id, {channel}type, value"
    found: list[Row] = []
    for text, values, own in _ranges(where, chain):
        order = _BY_PATH if paths and saver in _parallel else _BY_KEY
        asked = text.format(columns=columns, order=order)
        rows = cursor.execute(asked, values).fetchall()
        names = {row[0] for row in rows}
        if order is _BY_KEY and paths and _several_tasks(rows, names):
            _parallel.add(saver)
            asked = text.format(columns=columns, order=_BY_PATH)
            rows = cursor.execute(asked, values).fetchall()
        if not names.issubset(own):  # of another branch, or of no checkpoint at all
            rows = [row for row in rows if row[0] in own]
        found += rows
    return found


def _several_tasks(rows: list[Row], names: set[str]) -> bool:
    """Whether some checkpoint has writes of more than one task."""
    return len(names) < len(rows) and len({row[:2] for row in rows}) > len(names)


def _ranges(where: Where, chain: _Chain) -> list[tuple[str, tuple[str, ...], set[str]]]:
    """A statement for each run, with its values and the checkpoints whose writes are wanted."""
    found = []
    for start, end in zip(chain.runs, [*chain.runs[1:], len(chain.ids)], strict=True):
        own = chain.ids[start:end]
        for at in range(0, len(where.channels) if own else 0, _NAMES):
            channels, values = _channels(where.channels[at : at + _NAMES], chain, start, end)
            if channels:
                text = _WRITES.replace("{channels}", channels)
                place = (str(where.thread), where.space, own[-1], own[0])
                found.append((text, (*place, *values), set(own)))
    return found


def _channels(
    names: Sequence[str], chain: _Chain, start: int, end: int
) -> tuple[str, tuple[str, ...]]:
    """Which channels' writes to fetch from one descent, each no farther than to its seed."""
    whole = [name for name in names if chain.depth[name] >= end]
    part = [name for name in names if start < chain.depth[name] < end]
    if not part:
        if len(whole) == 1:
            return "channel = ?", (whole[0],)
        return f"channel IN ({', '.join('?' * len(whole))})" if whole else "", tuple(whole)
    lows = [(name, chain.ids[chain.depth[name] - 1]) for name in part]
    lows += [(name, "") for name in whole]
    # A CASE, since an OR might be taken for several searches.
    cases = " ".join(["WHEN ? THEN checkpoint_id >= ?"] * len(lows))
    return f"CASE channel {cases} END", tuple(value for pair in lows for value in pair)


def _built(
    chain: _Chain, rows: list[Row], where: Where, loads: Callable[[tuple[str, bytes]], Any]
) -> Trail:
    """The histories from the rows."""
    if len(chain.runs) > 1:
        place = {name: -at for at, name in enumerate(chain.ids)}
        rows.sort(key=lambda row: place[row[0]])
    writes: dict[str, list[Write]] = {name: [] for name in where.channels}
    if len(writes) == 1:
        (name,) = writes
        writes[name] = [(task, name, loads((tag, value))) for _, task, tag, value in rows]
    else:
        for _, task, name, tag, value in rows:
            writes[name].append((task, name, loads((tag, value))))
    found = Trail()
    for name in where.channels:
        history: Any = {"writes": writes[name]}
        if name in chain.seeds:
            history["seed"] = chain.seeds[name]
        elif chain.missing:
            found.broken[name] = chain.missing
        found.histories[name] = history
    return found
