"""The passes over a Postgres database: statements whose number does not depend on what it holds."""

from __future__ import annotations

import json
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from psycopg import sql

from savermark.backends import _postgres_sql as queries
from savermark.database.base import Clash, Orphan, Space, Threads
from savermark.history.image import COUNTERS, COUNTERS_OF_OLD, NOTHING, counted_channels
from savermark.storage import TABLES, StorageRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg

_CHUNK = 2_000  # rows the driver takes at a time
_AMONG = "thread_id = ANY(%(threads)s)"
# A snapshot is an inline `true` with a blob behind it; a plain True has none.
_SPACES = """
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id,
    pg_column_size(checkpoint) + pg_column_size(metadata),
    CASE WHEN checkpoint -> 'channel_values' @? '$.* ? (@ == true)' THEN (
        SELECT array_agg(key) FROM jsonb_each(checkpoint -> 'channel_values')
        WHERE value = 'true' AND EXISTS (
            SELECT FROM checkpoint_blobs AS b
            WHERE b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns
                AND b.channel = key AND b.version = checkpoint -> 'channel_versions' ->> key
        )
    ) END,
    CASE WHEN lead(checkpoint_id) OVER (
        PARTITION BY thread_id, checkpoint_ns ORDER BY checkpoint_id
    ) IS NULL THEN metadata::text END
FROM checkpoints AS c {where}
ORDER BY thread_id, checkpoint_ns, checkpoint_id
"""
# Keys alone are compared, which both indexes hold; only what is lost is fetched, one by one.
_ORPHAN_WRITES = """
SELECT lost.*, found.* FROM (
    SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoint_writes WHERE {among}
    EXCEPT SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints WHERE {among}
) AS lost CROSS JOIN LATERAL (
    SELECT count(*), coalesce(sum(octet_length(blob)), 0)::bigint FROM checkpoint_writes AS w
    WHERE w.thread_id = lost.thread_id AND w.checkpoint_ns = lost.checkpoint_ns
        AND w.checkpoint_id = lost.checkpoint_id
    OFFSET 0
) AS found ORDER BY 1
"""
_ORPHAN_BLOBS = """
SELECT thread_id, checkpoint_ns, NULL, count(*), coalesce(sum(octet_length(blob)), 0)::bigint
FROM checkpoint_blobs AS b
WHERE {among} AND NOT EXISTS (
    SELECT FROM checkpoints AS c, jsonb_each_text(c.checkpoint -> 'channel_versions') AS named
    WHERE c.thread_id = b.thread_id AND c.checkpoint_ns = b.checkpoint_ns
        AND named.key = b.channel AND named.value = b.version
) GROUP BY 1, 2 ORDER BY 1
"""
_VALUES = """
SELECT held.key, count(*), sum(octet_length(held.value::text))::bigint
FROM checkpoints, jsonb_each(checkpoint -> 'channel_values') AS held {where} GROUP BY 1
"""
_CLASHES = """
SELECT thread_id, checkpoint_ns, max(checkpoint_id), min(checkpoint_id), held.key,
    checkpoint -> 'channel_versions' ->> held.key
FROM checkpoints, jsonb_each(checkpoint -> 'channel_values') AS held {where}
GROUP BY thread_id, checkpoint_ns, held.key, checkpoint -> 'channel_versions' ->> held.key
HAVING min(md5(held.value::text)) <> max(md5(held.value::text))
    AND checkpoint -> 'channel_versions' ->> held.key IS NOT NULL
"""
# Marks of delta channels without their snapshot.
_SUSPECTS = f"""
WITH delta AS (
    SELECT DISTINCT jsonb_object_keys(coalesce(
        metadata -> '{COUNTERS}', metadata -> '{COUNTERS_OF_OLD}')) AS channel
    FROM checkpoints
    WHERE jsonb_typeof(coalesce(
        metadata -> '{COUNTERS}', metadata -> '{COUNTERS_OF_OLD}')) = 'object'
)
SELECT DISTINCT c.thread_id
FROM checkpoints AS c, jsonb_each(c.checkpoint -> 'channel_values') AS held
WHERE c.checkpoint -> 'channel_values' @? '$.* ? (@ == true)' AND held.value = 'true'
    AND held.key IN (SELECT channel FROM delta)
    AND NOT EXISTS (
        SELECT FROM checkpoint_blobs AS b
        WHERE b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns
            AND b.channel = held.key
            AND b.version = c.checkpoint -> 'channel_versions' ->> held.key
    )
"""
Row = tuple[Any, ...]


class PostgresReading:
    """See `base.Reading`."""

    def __init__(self, connection: psycopg.Connection[Any], *, task_path: bool) -> None:
        self._connection = connection
        self._task_path = task_path

    def storage(self, threads: Threads = None) -> Iterator[StorageRow]:
        """One statement over the three tables."""
        tables = [
            sql.SQL(
                "SELECT {}, found.* FROM ({}) AS found (thread_id, ns, ch, n, logical, stored)"
            ).format(table, queries.storage_query(table, threads))
            for table in TABLES
        ]
        query = sql.SQL("{} ORDER BY thread_id").format(sql.SQL(" UNION ALL ").join(tables))
        for table, thread, space, channel, *numbers in self._stream(query, threads):
            yield StorageRow(thread, space, table, channel, *numbers)

    def spaces(self, threads: Threads = None) -> Iterator[Space]:
        """One pass along an index, by one process: workers would hand whole rows to it."""
        query = sql.SQL(_SPACES).format(where=_where(threads))
        self._connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        for (thread, space), group in groupby(self._stream(query, threads), itemgetter(0, 1)):
            yield _space(thread, space, group)
        self._connection.execute("SET LOCAL max_parallel_workers_per_gather TO DEFAULT")

    def orphans(self, threads: Threads = None) -> Iterator[Orphan]:
        """One anti-join of the writes and one of the blobs."""
        among = sql.SQL("true" if threads is None else _AMONG)
        for table, text in (("writes", _ORPHAN_WRITES), ("blobs", _ORPHAN_BLOBS)):
            query = sql.SQL(text).format(among=among)
            for row in self._stream(query, threads):
                yield Orphan(table, *row)  # type: ignore[arg-type]

    def values(self, threads: Threads = None) -> Iterator[tuple[str, int, int]]:
        """The values inside the JSON: primitives, and the marks of what lies apart."""
        yield from self._stream(sql.SQL(_VALUES).format(where=_where(threads)), threads)

    def clashes(self, threads: Threads = None) -> Iterator[Clash]:
        """The primitives inside the JSON, compared on the server."""
        for row in self._stream(sql.SQL(_CLASHES).format(where=_where(threads)), threads):
            yield Clash(*row)

    def suspects(self) -> Iterator[str]:
        """Threads with the mark of a snapshot that is not stored."""
        for (thread,) in self._stream(sql.SQL(_SUSPECTS), None):
            yield thread

    def _stream(self, query: sql.SQL | sql.Composed, threads: Threads) -> Iterator[Row]:
        with self._connection.cursor() as cursor:
            yield from cursor.stream(query, queries.listed(threads) or None, size=_CHUNK)


def _where(threads: Threads) -> sql.SQL:
    return sql.SQL("" if threads is None else f"WHERE {_AMONG}")


def _space(thread: str, space: str, group: Iterator[Row]) -> Space:
    links: dict[str, tuple[str | None, int]] = {}
    marks: dict[str, frozenset[str]] = {}
    head, metadata = "", "{}"
    for _, _, name, parent, size, marked, told in group:
        links[name] = (parent or None, size)
        if marked:
            marks[name] = frozenset(marked)
        if told is not None:
            head, metadata = name, told
    fields = _fields(metadata)
    delta = counted_channels(fields)
    delta |= marks.get(head, NOTHING)  # what is snapshotted on the head itself is not counted
    seeds = {name: own for name, found in marks.items() if (own := found & delta)}
    parents = fields.get("parents")
    return Space(
        thread,
        space,
        head,
        links,
        delta,
        seeds,
        parents if isinstance(parents, dict) else {},
    )


def _fields(text: str) -> Mapping[str, Any]:
    fields = json.loads(text)
    return fields if isinstance(fields, dict) else {}
