"""The keep-set of a checkpoint in SQLite.

The usual thread is one line whose ids ascend, so a scan down the primary key, read as far as
needed, is the chain; rows of other branches are passed over. Whatever does not fit (a parent that
sorts above its child or is missing, a channel whose nature only ancestors can tell) is walked
along the parent links by a recursive query instead, from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from savermark.history.image import CheckpointRow
from savermark.history.lineage import TASKS, Channels, KeepSet, answer, missing_values, needs
from savermark.history.wire import outline, packed_names

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

ReadRow = Callable[[tuple[Any, ...]], CheckpointRow]

COLUMNS = "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
_SPACE = "FROM main.checkpoints WHERE thread_id = ? AND checkpoint_ns = ?"
_SCAN = (
    f"SELECT checkpoint_id, parent_checkpoint_id, type, checkpoint {_SPACE} "
    "AND checkpoint_id < ? ORDER BY checkpoint_id DESC LIMIT ?"
)
# The recursion carries ids alone, so that no value goes through its queue; CROSS JOIN keeps its
# place as the outer loop. Rows come one by one: a circle ends when the reader stops.
_CHAIN = f"""
WITH RECURSIVE chain(id) AS (
    SELECT ?
    UNION ALL
    SELECT c.parent_checkpoint_id FROM chain CROSS JOIN main.checkpoints AS c
    WHERE c.thread_id = ? AND c.checkpoint_ns = ? AND c.checkpoint_id = chain.id
        AND c.parent_checkpoint_id IS NOT NULL
    LIMIT ?
)
SELECT {COLUMNS} FROM chain CROSS JOIN main.checkpoints
WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = chain.id
"""
_SENDS = (
    "SELECT EXISTS (SELECT 1 FROM main.writes WHERE thread_id = ?1 AND checkpoint_ns = ?2 "
    "AND checkpoint_id = ?3 AND channel = ?4) AND EXISTS (SELECT 1 FROM main.checkpoints "
    "WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3)"
)

_VALUES = b"\xaechannel_values"  # the key as the writer packs it, behind format, time and id
_VERSIONS = b"\xb0channel_versions"  # and the one that comes next
_WITHIN = 160  # bytes in which the first of them starts
_EMPTY = 0x80  # the map that values nothing


def keep_set(
    cursor: sqlite3.Cursor,
    read: ReadRow,
    where: tuple[str, str],
    checkpoint_id: str | None,
    channels: Channels,
    chunk: int,
) -> KeepSet:
    """The keep-set of one checkpoint of `where` (thread, namespace), the newest for None.

    `read` makes a record of the columns. No statement is asked for more than `chunk` rows.
    """
    named = "AND checkpoint_id = ?" if checkpoint_id else "ORDER BY checkpoint_id DESC LIMIT 1"
    asked = (*where, checkpoint_id) if checkpoint_id else where
    found = cursor.execute(f"SELECT {COLUMNS} {_SPACE} {named}", asked).fetchone()
    if found is None:
        return KeepSet()
    target = read(found)
    sends = bool(
        target.v < 4
        and target.parent_id
        and cursor.execute(_SENDS, (*where, target.parent_id, TASKS)).fetchone()[0]
    )
    certain, doubtful = missing_values(target, channels)
    if certain and not doubtful and not sends and not target.unreadable:
        line = _line(cursor, where, target, certain, chunk)
        if line is not None:
            return KeepSet(line, {target.checkpoint_id})
    walk = needs(where[0], target, channels, sends=sends)
    return answer(walk, _Chain(cursor, read, where, chunk).find)


def _line(
    cursor: sqlite3.Cursor,
    where: tuple[str, str],
    target: CheckpointRow,
    channels: Collection[str],
    chunk: int,
) -> list[str] | None:
    """The chain down to the last seed, read off the primary key; None where it leaves the line."""
    want, sought = target.parent_id, packed_names(channels)
    line = [target.checkpoint_id]
    if want is None:
        return line
    for name, parent, tag, data in _descending(cursor, where, target.checkpoint_id, chunk):
        if name != want:
            if name > want:
                continue  # another branch
            return None
        line.append(name)
        if type(data) is not bytes:
            return None
        if may_value(data, sought):
            known = outline(tag, data, None)
            if known is None:
                return None
            sought = {key: c for key, c in sought.items() if c not in known.valued}
            if not sought:
                return line
        if not parent:
            return line
        want = parent
    return None


def may_value(data: bytes, sought: Iterable[bytes]) -> bool:
    """Whether a serialized checkpoint may value a channel; only then it is worth parsing.

    `sought` are names as `packed_names` has them. Another writer's order of keys, or another form,
    is parsed.
    """
    at = data.find(_VALUES, 0, _WITHIN)
    if at < 0:
        return True
    if data[at + 15] == _EMPTY:
        return False
    end = data.rfind(_VERSIONS)
    return end < at or any(data.find(key, at, end) >= 0 for key in sought)


def _descending(
    cursor: sqlite3.Cursor, where: tuple[str, str], below: str, chunk: int
) -> Iterator[tuple[str, str | None, str | None, Any]]:
    """The checkpoints below an id, newest first, in statements of at most `chunk` rows."""
    while True:
        count = 0
        for row in cursor.execute(_SCAN, (*where, below, chunk)):
            count += 1
            below = row[0]
            yield row
        if count < chunk:
            return


class _Chain:
    """Finds the checkpoints of a chain by id, given that each asked for is the last one's parent.

    One recursive query yields them in this order; when it has yielded `chunk`, another goes on.
    """

    def __init__(
        self, cursor: sqlite3.Cursor, read: ReadRow, where: tuple[str, str], chunk: int
    ) -> None:
        self._cursor, self._read, self._where, self._chunk = cursor, read, where, chunk
        self._rows: Iterator[tuple[Any, ...]] = iter(())

    def find(self, name: str) -> CheckpointRow | None:
        """The checkpoint of this id, None when it is not stored."""
        row = next(self._rows, None)
        if row is None:
            asked = (name, *self._where, self._chunk, *self._where)
            self._rows = self._cursor.execute(_CHAIN, asked)
            row = next(self._rows, None)
        return None if row is None else self._read(row)
