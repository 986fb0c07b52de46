"""Many threads of a SQLite file in one transaction.

There is no trip to a server to save, and statements over sets of threads are the slower ones here:
each thread is read along its keys and cleared by ranges of them, one table after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from savermark.history import sqlite_chain
from savermark.history.bulk import Outline, Space
from savermark.history.image import NOTHING, ThreadImage, WriteRow
from savermark.history.lineage import KeepSet, LineageError
from savermark.history.rows import CHUNK

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from savermark.history.bulk import Cut, Place
    from savermark.history.image import CheckpointRow
    from savermark.history.sqlite import SqliteRows
    from savermark.storage import Table

_READABLE = frozenset({("msgpack", "blob"), ("json", "blob")})  # without a serializer of anyone's
_KEY = itemgetter(0, 1)
_LINES = """
SELECT checkpoint_ns, checkpoint_id, ifnull(parent_checkpoint_id, ''), type, typeof(checkpoint)
FROM main.checkpoints WHERE thread_id = ? ORDER BY checkpoint_ns, checkpoint_id
"""
# Read off the key alone.
_OWNERS = """
SELECT DISTINCT checkpoint_ns, checkpoint_id FROM main.writes WHERE thread_id = ?
"""
_ONE = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
_ROW = f"SELECT {sqlite_chain.COLUMNS} FROM main.checkpoints {_ONE}"
_METADATA = f"""
SELECT {sqlite_chain.COLUMNS} FROM main.checkpoints WHERE thread_id = ? AND checkpoint_ns = ?
"""
_OWNED = f"""
SELECT checkpoint_ns, checkpoint_id, task_id, idx, channel, {{path}}, 0
FROM main.writes {_ONE} ORDER BY task_id, idx
"""
_DETACH = f"UPDATE main.checkpoints SET parent_checkpoint_id = NULL {_ONE}"


class SqliteBulk:
    """See `bulk.BulkRows`."""

    def __init__(self, rows: SqliteRows) -> None:
        self.reader = rows

    @contextmanager
    def transaction(self, threads: Sequence[str]) -> Iterator[SqliteBulkTxn]:
        """BEGIN IMMEDIATE: no one else writes to the file meanwhile."""
        with self.reader.transaction("") as txn:
            yield SqliteBulkTxn(self.reader, txn.cursor, threads)


@dataclass(frozen=True, slots=True)
class _Line:
    """One namespace of one thread: its ids in order."""

    ids: tuple[str, ...]
    linear: bool


class SqliteBulkTxn:
    """See `bulk.BulkTxn`."""

    def __init__(self, rows: SqliteRows, cursor: sqlite3.Cursor, threads: Sequence[str]) -> None:
        self._rows, self._cursor, self._threads = rows, cursor, threads
        self._lines: dict[str, dict[str, _Line]] = {}

    def outlines(self) -> Iterator[Outline]:
        """Two statements a thread, and two a namespace."""
        for thread in self._threads:
            rows = self._cursor.execute(_LINES, (thread,)).fetchall()
            if rows:
                owners = set(self._cursor.execute(_OWNERS, (thread,)).fetchall())
                alone = owners.difference(map(_KEY, rows))
                self._lines[thread] = self._read(rows)
                yield self._outline(thread, self._lines[thread], len(alone))

    def _read(self, rows: Sequence[tuple[str, ...]]) -> dict[str, _Line]:
        found = {}
        for space, group in groupby(rows, itemgetter(0)):
            _, ids, parents, tags, kinds = zip(*group, strict=True)
            linear = parents == ("", *ids[:-1]) and _READABLE.issuperset(
                zip(tags, kinds, strict=True)
            )
            found[space] = _Line(ids, linear)
        return found

    def _outline(self, thread: str, lines: Mapping[str, _Line], strays: int) -> Outline:
        heads: list[CheckpointRow] = []
        writes: list[WriteRow] = []
        spaces = dict[str, Space]()
        path = "task_path" if self._rows.has_paths(self._cursor) else "''"
        owned = _OWNED.format(path=path)
        for space, line in lines.items():
            key = (thread, space, line.ids[-1])
            head = self._row(*key)
            heads.append(head)
            writes += [WriteRow(*row) for row in self._cursor.execute(owned, key)]
            spaces[space] = Space(
                space,
                len(line.ids),
                head,
                line.linear,
                self._repeats(thread, line, head),
                self._callers(thread, space) if ":" in space else NOTHING,
            )
        named = NOTHING.union(*(space.callers for space in spaces.values()))
        roots = named.intersection(lines[""].ids) if "" in lines else NOTHING
        image = ThreadImage(thread, tuple(heads), tuple(writes))
        return Outline(thread, spaces, image, strays, roots)

    def _row(self, thread: str, space: str, name: str) -> CheckpointRow:
        return self._rows.checkpoint(self._cursor.execute(_ROW, (thread, space, name)).fetchone())

    def _repeats(self, thread: str, line: _Line, head: CheckpointRow) -> bool:
        if len(line.ids) < 2 or head.metadata.get("source") != "update":
            return False  # nobody asks
        return self._row(thread, head.checkpoint_ns, line.ids[-2]).versions == head.versions

    def _callers(self, thread: str, space: str) -> frozenset[str]:
        found = set()
        for row in self._cursor.execute(_METADATA, (thread, space)).fetchall():
            parents = self._rows.checkpoint(row).metadata.get("parents")
            named = parents.get("") if isinstance(parents, Mapping) else None
            found.add(named if isinstance(named, str) else "")
        return frozenset(found)

    def holders(self, checkpoint_ids: Collection[str]) -> set[str]:
        """No statement: after `outlines`."""
        return {
            thread
            for thread, lines in self._lines.items()
            for line in lines.values()
            if not set(checkpoint_ids).isdisjoint(line.ids)
        }

    def keep_sets(self, wanted: Mapping[Place, Collection[str]]) -> dict[Place, KeepSet]:
        """A scan along the key for each (`sqlite_chain`)."""
        found: dict[Place, KeepSet] = {}
        for place in wanted:
            ids = self._lines[place[0]][place[1]].ids
            try:
                kept = sqlite_chain.keep_set(
                    self._cursor, self._rows.checkpoint, place, ids[-1], "auto", CHUNK
                )
            except LineageError:  # an unreadable checkpoint
                continue
            if kept == frozenset(ids[-len(kept) :]):
                found[place] = kept
        return found

    def doubtful(self, cuts: Sequence[Cut]) -> Collection[str]:
        """None: a snapshot is part of its checkpoint."""
        return ()

    def clear(self, cuts: Sequence[Cut]) -> dict[str, dict[Table, int]]:
        """One range of keys for each cut and table."""
        done: dict[str, dict[Table, int]] = {
            cut.thread_id: {"checkpoints": 0, "blobs": 0, "writes": 0} for cut in cuts
        }
        for cut in cuts:
            if cut.detach:
                key = (cut.thread_id, cut.checkpoint_ns, min(cut.kept))
                self._cursor.execute(_DETACH, key)
        tables: tuple[Table, ...] = ("writes", "checkpoints")
        for table in tables:
            for cut in cuts:
                below = "AND checkpoint_id < ?" if cut.kept else ""
                values = [cut.thread_id, cut.checkpoint_ns, *([min(cut.kept)] if cut.kept else ())]
                done[cut.thread_id][table] += self._cursor.execute(
                    f"DELETE FROM main.{table} WHERE thread_id = ? AND checkpoint_ns = ? {below}",
                    values,
                ).rowcount
        return done
