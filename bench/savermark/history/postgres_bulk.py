"""Many threads of a Postgres database in one transaction, by statements over sets.

A few statements a batch tell what each thread is like (`postgres_facts`), a few more clear it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from savermark.errors import BackendError
from savermark.history import postgres_bulk_sql as sql
from savermark.history.bulk import Outline, Space
from savermark.history.image import NOTHING, ThreadImage, WriteRow
from savermark.history.lineage import KeepSet
from savermark.history.postgres import PostgresRows, repeatable, versions_of
from savermark.history.postgres_facts import Facts, add_blobs, spaces_of
from savermark.history.rows import ThreadBusy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from savermark.history.bulk import Cut
    from savermark.history.image import CheckpointRow
    from savermark.history.postgres import Cursor
    from savermark.storage import Table

Place = tuple[str, str]  # thread, namespace
Array = str | list[str]
Callers = dict[str, dict[str, set[str]]]  # thread, namespace, root checkpoints

_FEW = 4  # threads
_LINES, _WRITES = 0, 2  # of the kinds of `FACTS`


class PostgresBulk:
    """See `bulk.BulkRows`."""

    def __init__(self, rows: PostgresRows) -> None:
        self.reader = rows

    @contextmanager
    def transaction(self, threads: Sequence[str]) -> Iterator[PostgresBulkTxn]:
        """REPEATABLE READ under the locks of those threads that nobody else holds."""
        with self.reader.cursor() as cursor:
            if not cursor.connection.autocommit:
                raise BackendError("maintenance needs an autocommit connection: open one")
            # A plan for any list is good enough for a short one, and need not be made again.
            prepare = None if len(threads) <= _FEW else False
            with repeatable(cursor):
                for setting in sql.ROOM if prepare is False else ():
                    cursor.execute(setting)
                held = cursor.execute(sql.TRY, (list(threads),), prepare=prepare)
                names = [row[0] for row in held]
                yield PostgresBulkTxn(self.reader, cursor, names, prepare)


class PostgresBulkTxn:
    """See `bulk.BulkTxn`."""

    def __init__(
        self, rows: PostgresRows, cursor: Cursor, threads: list[str], prepare: bool | None
    ) -> None:
        self._rows, self._cursor, self._threads, self._prepare = rows, cursor, threads, prepare
        self._facts: dict[str, dict[str, Facts]] = {}
        self._writes: dict[str, int] = {}
        self._owned: dict[str, list[WriteRow]] = {}

    def outlines(self) -> list[Outline]:
        """Two statements, three with subgraph calls."""
        strays = self._read()
        heads: defaultdict[str, list[CheckpointRow]] = defaultdict(list)
        owned: defaultdict[str, list[WriteRow]] = defaultdict(list)
        places = [
            (thread, space, facts.ids[-1])
            for thread, spaces in self._facts.items()
            for space, facts in spaces.items()
        ]
        path = "task_path" if self._rows.has_paths(self._cursor) else "''::text"
        for thread, writes, *row in self._ask(sql.HEADS.format(path=path), *_columns(places)):
            versions = versions_of(row[3])
            filled = self._facts[thread][row[0]].filled
            backed = {c for c, version in versions.items() if f'{c}": "{version}' in filled}
            heads[thread].append(self._rows.checkpoint(tuple(row), backed, versions))
            owned[thread] += [WriteRow(row[0], row[1], *write) for write in writes]
        self._owned = owned
        callers = self._callers()
        return [
            Outline(
                thread,
                {row.checkpoint_ns: self._space(thread, row, callers) for row in heads[thread]},
                ThreadImage(thread, tuple(heads[thread]), tuple(owned[thread])),
                strays[thread],
                self._roots(thread, callers),
            )
            for thread in self._threads
            if thread in self._facts and len(heads[thread]) == len(self._facts[thread])
        ]

    def _read(self) -> dict[str, int]:
        """Fill in the facts; the rows of each thread that hang on nothing."""
        early, strays = dict[str, str](), defaultdict[str, int](int)
        for kind, thread, count, *texts in self._told():
            if kind == _LINES:
                self._facts[thread] = spaces_of(count, texts)
            elif kind == _WRITES:
                self._writes[thread] = count
                strays[thread] += int(texts[0])
            elif thread in self._facts:  # as a rule: the branches of the statement come in turn
                strays[thread] += add_blobs(self._facts[thread], texts[0])
            else:
                early[thread] = texts[0]
        for thread in early.keys() & self._facts.keys():
            strays[thread] += add_blobs(self._facts[thread], early[thread])
        self._facts = {thread: found for thread, found in self._facts.items() if found}
        return strays

    def _told(self) -> Iterator[Any]:
        asked = {"threads": _array(self._threads)}
        if self._prepare is None:
            return iter(self._cursor.execute(sql.FACTS, asked))
        # Row by row: one thread's texts are taken apart while the server gathers the next one's.
        return self._cursor.stream(sql.FACTS, asked)

    def _space(self, thread: str, head: CheckpointRow, callers: Callers) -> Space:
        facts = self._facts[thread][head.checkpoint_ns]
        return Space(
            head.checkpoint_ns,
            len(facts.ids),
            head,
            facts.linear,
            facts.repeats,
            frozenset(callers.get(thread, {}).get(head.checkpoint_ns, ())),
        )

    def _callers(self) -> Callers:
        callers: Callers = {}
        asked = [
            thread
            for thread, spaces in self._facts.items()
            if any(":" in space for space in spaces)
        ]
        for thread, space, root in self._ask(sql.CALLERS, asked) if asked else ():
            callers.setdefault(thread, {}).setdefault(space, set()).add(root)
        return callers

    def _roots(self, thread: str, callers: Callers) -> frozenset[str]:
        named, root = (
            set[str]().union(*callers.get(thread, {}).values()),
            self._facts[thread].get(""),
        )
        return frozenset(named.intersection(root.ids)) if named and root else NOTHING

    def holders(self, checkpoint_ids: Collection[str]) -> set[str]:
        """One statement."""
        return {row[0] for row in self._ask(sql.HOLDERS, self._threads, list(checkpoint_ids))}

    def keep_sets(self, wanted: Mapping[Place, Collection[str]]) -> dict[Place, KeepSet]:
        """One statement: what blobs store is known, what checkpoints store themselves is not."""
        keys = [(*place, channel) for place, channels in wanted.items() for channel in channels]
        inline = {
            (thread, space, channel): name
            for thread, space, channel, name in self._ask(sql.INLINE, *_columns(keys))
        }
        found = {}
        for place, channels in wanted.items():
            facts = self._facts[place[0]][place[1]]
            lows = []
            for channel in channels:
                name = inline.get((*place, channel))
                lows.append(max(facts.newest(channel), facts.ids.index(name) if name else 0))
            found[place] = KeepSet(facts.ids[min(lows) :], facts.ids[-1:])
        return found

    def doubtful(self, cuts: Sequence[Cut]) -> set[str]:
        """One statement or two: a mark looks like a plain True, and only delta channels have it."""
        marked = {tuple(row) for row in self._ask(sql.MARKS, *_columns(_kept(cuts)))}
        if not marked:
            return set()
        counted = {tuple(row) for row in self._ask(sql.COUNTED, sorted({m[0] for m in marked}))}
        return {
            thread
            for thread, space, channel in marked
            if (thread, space, channel) in counted
            or any(p.startswith(f'{channel}": "') for p in self._facts[thread][space].filled)
        }

    def clear(self, cuts: Sequence[Cut]) -> dict[str, dict[Table, int]]:
        """A few statements, whose counts must be those that the outlines foresaw."""
        done, live = self._foreseen(cuts)
        loose = [(c.thread_id, c.checkpoint_ns, min(c.kept)) for c in cuts if c.detach]
        values: dict[str, Any] = {"threads": _array([*done])}
        for kind, keys in (("", _kept(cuts)), ("loose_", loose), ("blob_", live)):
            names = (f"{kind}thread", f"{kind}space", f"{kind}id")
            values |= dict(zip(names, _columns(keys), strict=True))
        values["ids"] = _array(sorted({name for cut in cuts for name in cut.kept}))
        values["versions"] = _array(sorted({pair.rpartition('": "')[2] for _, _, pair in live}))
        foreseen = {table: sum(each[table] for each in done.values()) for table in sql.CLEAR}
        if self._clear(values, len(done)) != foreseen:
            raise ThreadBusy("other rows were met than had been seen")
        return done

    def _clear(self, values: Mapping[str, Any], threads: int) -> dict[Table, int]:
        run = partial(self._cursor.execute, params=values, prepare=self._prepare)
        if threads <= _FEW:
            return dict(zip(sql.CLEAR, run(sql.CLEAR_ALL).fetchone() or (), strict=True))
        run(sql.LOOSEN)
        self._cursor.execute(sql.BY_PAGES)
        return {table: run(statement).rowcount for table, statement in sql.CLEAR.items()}

    def _foreseen(
        self, cuts: Sequence[Cut]
    ) -> tuple[dict[str, dict[Table, int]], list[tuple[str, str, str]]]:
        """The rows that will go of each thread, and the blobs that stay."""
        done: dict[str, dict[Table, int]] = {}
        live = list[tuple[str, str, str]]()
        for cut in cuts:
            thread, space, kept = cut.thread_id, cut.checkpoint_ns, len(cut.kept)
            facts = self._facts[thread][space]
            counts = done.setdefault(
                thread, {"checkpoints": 0, "blobs": 0, "writes": self._writes.get(thread, 0)}
            )
            left = facts.named(kept)
            live += [(thread, space, pair) for pair in left]
            counts["checkpoints"] += len(facts.ids) - kept
            counts["blobs"] += len(facts.blobs) - len(left)
            if kept == 1:
                counts["writes"] -= sum(w.checkpoint_ns == space for w in self._owned[thread])
        more = _kept([cut for cut in cuts if len(cut.kept) > 1])
        for thread, count in self._ask(sql.OWNED, *_columns(more)) if more else ():
            done[thread]["writes"] -= count
        return done, live

    def _ask(self, statement: str, *values: Any) -> Cursor:
        return self._cursor.execute(statement, values, prepare=self._prepare)


def _kept(cuts: Sequence[Cut]) -> list[tuple[str, str, str]]:
    return [(cut.thread_id, cut.checkpoint_ns, name) for cut in cuts for name in cut.kept]


def _columns(keys: Sequence[tuple[str, ...]], width: int = 3) -> list[Array]:
    if not keys:
        return [_array([])] * width
    return [_array(column) for column in zip(*keys, strict=True)]


def _array(items: Sequence[str]) -> Array:
    """A list of texts as the server reads it: the driver would build it item by item.

    JSON quotes as an array does, but for what it writes with a backslash that quotes no quote.
    """
    text = json.dumps(items, ensure_ascii=False)
    return list(items) if "\\" in text.replace('\\"', "") else f"{{{text[1:-1]}}}"
