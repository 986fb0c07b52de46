"""The one-pass walk in SQLite: a scan down the primary key, then one range of writes.

The scan follows the parent links: checkpoints of other branches are passed over, a few in a row,
and where the parent is farther or above, the scan starts again at the parent. So a thread without
forks takes two statements, and every other one a statement more for each jump, and one for the
writes behind it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from savermark.history.walks import peek
from savermark.history.walks.found import Trail, Where, Write

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

MAPPED = 256 * 2**20  # bytes of the file that a connection may map, once checkpoints are large
_LARGE = 4_096  # bytes from which on a checkpoint lies on pages of its own
_FOREIGN = 3  # checkpoints of other branches in a row before the scan starts again
_NAMES = 400  # channels in one statement: the first SQLite builds take 999 parameters

_SCAN = (
    "SELECT checkpoint_id, parent_checkpoint_id, type, checkpoint FROM checkpoints "
    "WHERE thread_id = ? AND checkpoint_ns = ?{} ORDER BY checkpoint_id DESC"
)
_NEWEST, _FROM = _SCAN.format(""), _SCAN.format(" AND checkpoint_id <= ?")
_WRITES = (
    "SELECT checkpoint_id, {path}, task_id, idx, channel, type, value FROM writes "
    "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id >= ? AND checkpoint_id <= ? "
    "AND {channels}"
)

Row = tuple[Any, ...]

_mapped: WeakSet[Any] = WeakSet()  # savers whose connection may map its file


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
    large: bool = False


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
    chain = _follow(cursor, where, saver.serde)
    rows = _fetch(cursor, where, chain, getattr(saver, "_has_task_path", True))
    if chain.large and MAPPED and saver not in _mapped:
        _mapped.add(saver)
        cursor.execute(f"PRAGMA mmap_size = {MAPPED}").fetchall()
    return chain, rows


def _follow(cursor: sqlite3.Cursor, where: Where, serde: SerializerProtocol) -> _Chain:
    """Down the parent links until every channel has its seed."""
    chain = _Chain()
    place = (str(where.thread), where.space)
    rows = cursor.execute(_FROM, (*place, where.id)) if where.id else cursor.execute(_NEWEST, place)
    target = rows.fetchone()
    if target is None or (where.id and target[0] != where.id):
        return chain
    seeds = _Seeds(chain, where.channels, serde)
    want, at = target[1], target[0]
    climbed: set[str] = set()  # what was passed before, once the way has led up
    while want and seeds.left:
        passed = 0
        for name, parent, tag, data in rows:
            if name == want:
                if climbed:
                    _once(where, climbed, name)
                chain.ids.append(name)
                want, at, passed = parent, name, 0
                if seeds.found(tag, data) or not want:
                    break
            elif name < want or passed >= _FOREIGN:
                break
            else:
                passed += 1
        if not want or not seeds.left:
            break
        if want >= at and not climbed:
            climbed = {target[0], *chain.ids}
        rows = cursor.execute(_FROM, (*place, want))
        first = rows.fetchone()
        if first is None or first[0] != want:
            chain.missing = want
            break
        if climbed:
            _once(where, climbed, want)
        chain.runs.append(len(chain.ids))
        chain.ids.append(want)
        want, at = first[1], want
        seeds.found(first[2], first[3])
    for name in seeds.left:
        chain.depth[name] = len(chain.ids)
    return chain


def _once(where: Where, passed: set[str], name: str) -> None:
    if name in passed:
        raise where.circle(name)
    passed.add(name)


class _Seeds:
    """Looks for the channels' values in the checkpoints passed."""

    def __init__(self, chain: _Chain, names: Sequence[str], serde: SerializerProtocol) -> None:
        self.left = list(names)
        self._chain, self._serde = chain, serde
        self._values = peek.Values(names)
        self._peek = peek.readable(serde)

    def found(self, tag: str, data: bytes) -> bool:
        """Take what the latest checkpoint values; whether nothing is left to look for."""
        if self._peek and tag == "msgpack":
            if len(data) > _LARGE:
                self._chain.large = True
            if not self._values.may(data):
                return False
        held = self._serde.loads_typed((tag, data)).get("channel_values") or {}
        for name in [name for name in self.left if name in held]:
            self._chain.seeds[name] = held[name]
            self._chain.depth[name] = len(self._chain.ids)
            self.left.remove(name)
            self._values.drop(name)
        return not self.left


def _fetch(cursor: sqlite3.Cursor, where: Where, chain: _Chain, paths: bool) -> list[Row]:
    """The writes of the chain, and perhaps some of other checkpoints between."""
    place = (str(where.thread), where.space)
    found: list[Row] = []
    for at in range(0, len(where.channels), _NAMES):
        names = where.channels[at : at + _NAMES]
        for start, end in zip(chain.runs, [*chain.runs[1:], len(chain.ids)], strict=True):
            if start == end:
                continue
            bounds = (chain.ids[end - 1], chain.ids[start])
            filtered, values = _channels(names, chain, start, end)
            if filtered:
                text = _WRITES.format(path="task_path" if paths else "''", channels=filtered)
                rows = cursor.execute(text, (*place, *bounds, *values)).fetchall()
                if len(chain.runs) > 1 or not {row[0] for row in rows} <= (
                    own := set(chain.ids[start:end])
                ):
                    # Of another branch, of another run, or of no checkpoint at all.
                    own = set(chain.ids[start:end])
                    rows = [row for row in rows if row[0] in own]
                found += rows
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
    """The histories from the rows; rows that belong to no checkpoint of the chain are left out."""
    rows.sort()
    if len(chain.runs) > 1:
        place = {name: -at for at, name in enumerate(chain.ids)}
        rows = [row for row in rows if row[0] in place]
        rows.sort(key=lambda row: place[row[0]])
    elif not {row[0] for row in rows} <= (known := set(chain.ids)):
        rows = [row for row in rows if row[0] in known]
    writes: dict[str, list[Write]] = {name: [] for name in where.channels}
    if len(writes) == 1:
        (name,) = writes
        writes[name] = [(row[2], name, loads((row[5], row[6]))) for row in rows]
    else:
        for _, _, task, _, name, tag, value in rows:
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
