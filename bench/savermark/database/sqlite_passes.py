"""The passes over a SQLite file: statements whose number does not depend on what it holds."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from heapq import merge
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from savermark.backends._sqlite_sizes import bytes_of, checkpoint_groups, write_groups
from savermark.database.base import Clash, Orphan, Space, Threads
from savermark.history.image import NOTHING, counted_channels
from savermark.history.sqlite_chain import may_value
from savermark.history.wire import Outline, outline, packed_names, sealed, unsealed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

    from savermark.storage import StorageRow

# A checkpoint up to this size comes with its row; of a larger one the overflow pages stay unread
# until something in it is asked for.
_AT_HAND = 4096
_SPACES = f"""
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id,
    {bytes_of("checkpoint")} + {bytes_of("metadata")},
    rowid, type, CASE WHEN length(checkpoint) <= {_AT_HAND} THEN checkpoint END, metadata
FROM main.checkpoints {{where}}
ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC
"""
# Both sides come in key order, so that they are merged, not stored.
_ORPHANS = f"""
SELECT w.thread_id, w.checkpoint_ns, w.checkpoint_id, count(*), sum({bytes_of("w.value")})
FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM main.writes {{where}}
    EXCEPT SELECT thread_id, checkpoint_ns, checkpoint_id FROM main.checkpoints {{where}}
    ORDER BY 1, 2, 3
) AS lost CROSS JOIN main.writes AS w USING (thread_id, checkpoint_ns, checkpoint_id)
GROUP BY 1, 2, 3
"""
_SUSPECTS = """
SELECT DISTINCT thread_id FROM main.checkpoints
WHERE type IS NOT 'msgpack' OR typeof(checkpoint) <> 'blob'
"""
_VALUED = """
SELECT thread_id, checkpoint_ns, checkpoint_id, type, checkpoint FROM main.checkpoints {where}
ORDER BY thread_id, checkpoint_ns, checkpoint_id
"""
_FEW = 400  # the first SQLite builds take 999 parameters, and one statement names threads twice
Row = tuple[Any, ...]


class SqliteReading:
    """See `base.Reading`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def storage(self, threads: Threads = None) -> Iterator[StorageRow]:
        """One pass over the checkpoints and one over the writes."""
        where, given = _among(threads)
        yield from merge(
            checkpoint_groups(self._connection, where, given),
            write_groups(self._connection, where, given),
            key=attrgetter("thread_id"),
        )

    def spaces(self, threads: Threads = None) -> Iterator[Space]:
        """One pass down the primary key."""
        where, given = _among(threads)
        rows = self._connection.execute(_SPACES.format(where=where), given)
        for (thread, space), group in groupby(rows, itemgetter(0, 1)):
            yield self._space(thread, space, group)

    def orphans(self, threads: Threads = None) -> Iterator[Orphan]:
        """The writes without a checkpoint; there are no blobs here."""
        where, given = _among(threads)
        for row in self._connection.execute(_ORPHANS.format(where=where), (*given, *given)):
            yield Orphan("writes", *row)

    def values(self, threads: Threads = None) -> Iterator[tuple[str, int, int]]:
        """Every checkpoint is opened, its extension objects stay sealed."""
        where, given = _among(threads)
        rows, sizes = Counter[str](), Counter[str]()
        statement = f"SELECT type, checkpoint FROM main.checkpoints {where}"
        for tag, data in self._connection.execute(statement, given):
            fields = unsealed(tag, data, None)
            held = fields.get("channel_values") if isinstance(fields, dict) else None
            for channel, value in (held or {}).items():
                rows[channel] += 1
                sizes[channel] += len(sealed(value, None)[1])
        for channel, count in rows.items():
            yield channel, count, sizes[channel]

    def clashes(self, threads: Threads = None) -> Iterator[Clash]:
        """Every checkpoint is opened; values are compared by a digest of their serialized form."""
        where, given = _among(threads)
        rows = self._connection.execute(_VALUED.format(where=where), given)
        for (thread, space), group in groupby(rows, itemgetter(0, 1)):
            seen: dict[tuple[str, str], tuple[str, bytes] | None] = {}
            for _, _, name, tag, data in group:
                for channel, version, digest in _digests(tag, data):
                    first = seen.setdefault((channel, version), (name, digest))
                    if first is not None and first[1] != digest:
                        seen[channel, version] = None  # told once
                        yield Clash(thread, space, name, first[0], channel, version)

    def suspects(self) -> Iterator[str]:
        """Threads with a checkpoint in another form than the savers' usual one."""
        for (thread,) in self._connection.execute(_SUSPECTS):
            yield str(thread)

    def _space(self, thread: str, space: str, group: Iterator[Row]) -> Space:
        head = next(group)
        links = {head[2]: (head[3] or None, head[4])}
        metadata = _fields(head[8])
        known = self._outline(head)
        delta = counted_channels(metadata) | (known.snapshots if known else NOTHING)
        seeds = {}
        if known and (own := delta & known.valued):
            seeds[head[2]] = own
        sought, want = delta - seeds.get(head[2], NOTHING), head[3]
        packed = packed_names(sought)
        for row in group:
            name, parent = row[2], row[3] or None
            links[name] = (parent, row[4])
            # Off the line of ascending ids only a parent that sorts above is passed over.
            if sought and name == want:
                if own := self._stored(row, sought, packed):
                    seeds[name] = own
                    sought -= own
                    packed = packed_names(sought)
                want = parent
        parents = metadata.get("parents")
        return Space(
            thread,
            space,
            head[2],
            links,
            delta,
            seeds,
            parents if isinstance(parents, dict) else {},
            unreadable=int(known is None),
        )

    def _stored(
        self, row: Row, sought: frozenset[str], packed: Mapping[bytes, str]
    ) -> frozenset[str]:
        """Which of the channels a checkpoint stores; `packed` are their names on the wire."""
        if row[7] is None:
            # What the metadata still counts was not stored here: the large value is another's.
            sought = sought - counted_channels(_fields(row[8]))
            if not sought:
                return NOTHING
        elif type(row[7]) is bytes and not may_value(row[7], packed):
            return NOTHING
        known = self._outline(row)
        return sought & known.valued if known else NOTHING

    def _outline(self, row: Row) -> Outline | None:
        data = row[7]
        if data is None:
            query = "SELECT checkpoint FROM main.checkpoints WHERE rowid = ?"
            (data,) = self._connection.execute(query, (row[5],)).fetchone()
        return outline(row[6], data, None)


def _among(threads: Threads) -> tuple[str, tuple[str, ...]]:
    """The clause that selects threads; many go as one parameter: a statement takes only so many.

    A few go one by one, since SQLite cuts text inside JSON off at a NUL.
    """
    if threads is None:
        return "", ()
    if len(threads) <= _FEW:
        return f"WHERE thread_id IN ({', '.join('?' * len(threads))})", tuple(threads)
    return "WHERE thread_id IN (SELECT value FROM json_each(?))", (json.dumps(list(threads)),)


def _digests(tag: str | None, data: Any) -> Iterator[tuple[str, str, bytes]]:
    """Channel, version and digest of each value inside a checkpoint."""
    fields = unsealed(tag, data, None)
    if isinstance(fields, dict):
        versions = fields.get("channel_versions") or {}
        for channel, value in (fields.get("channel_values") or {}).items():
            if channel in versions:
                yield channel, str(versions[channel]), sha256(sealed(value, None)[1]).digest()


def _fields(data: Any) -> Mapping[str, Any]:
    try:
        fields = json.loads(data) if data else {}
    except ValueError:  # damaged: says nothing
        return {}
    return fields if isinstance(fields, dict) else {}
