"""The statements of `postgres_bulk`. Keys come as columns: thread, namespace, checkpoint id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savermark.history.image import COUNTERS, COUNTERS_OF_OLD
from savermark.history.postgres import PostgresRows, lock_key

if TYPE_CHECKING:
    from savermark.storage import Table

# For this transaction only: sorts and hashes of a batch stay in memory, nothing is compiled, and
# keys are read off an index where they are in order, rather than off wide rows.
ROOM = (
    "SET LOCAL work_mem = '64MB'",
    "SET LOCAL jit = off",
    "SET LOCAL random_page_cost = 1.1",
)
# Once the keys are told: what goes lies on whole pages, and those are read many at a time.
BY_PAGES = "SET LOCAL enable_indexscan = off"
# Never waits, so the snapshot it takes may be older than what the last holder did; the deletion
# then meets rows that are gone and fails, which `ThreadBusy` says.
TRY = f"SELECT t FROM unnest(%s::text[]) AS t WHERE pg_try_advisory_xact_lock({lock_key('t')})"
# What there is of each thread (`postgres_facts`): texts with a line for each of its checkpoints,
# all in one order that nobody promises; a text for its blobs with each pair as it stands between
# the quotation marks of the versions; the number of its writes, and how many are of no checkpoint
# that is stored. Grouped by thread alone, which an index has in order: wide rows are dear to sort.
# Writes are counted thread by thread, from the keys alone: their rows are wide, too.
FACTS = """
SELECT 0, thread_id, count(*), string_agg(checkpoint_ns, E'\\n'), string_agg(checkpoint_id, E'\\n'),
    string_agg(coalesce(parent_checkpoint_id, ''), E'\\n'),
    string_agg((checkpoint -> 'channel_versions')::text, E'\\n')
FROM checkpoints WHERE thread_id = ANY(%(threads)s) GROUP BY thread_id
UNION ALL
SELECT 1, thread_id, count(*), string_agg(
    CASE WHEN checkpoint_ns = '' AND type <> 'empty' THEN channel || '": "' || version
        ELSE E'\\t' || CASE type WHEN 'empty' THEN '-' ELSE '+' END || checkpoint_ns || E'\\t'
            || channel || '": "' || version END, E'\\n'), NULL, NULL, NULL
FROM checkpoint_blobs WHERE thread_id = ANY(%(threads)s) GROUP BY thread_id
UNION ALL
SELECT 2, t.thread_id, w.count, w.alone::text, NULL, NULL, NULL
FROM unnest(%(threads)s::text[]) AS t (thread_id) CROSS JOIN LATERAL (
    SELECT count(*), count(*) FILTER (WHERE c.checkpoint_id IS NULL) AS alone
    FROM checkpoint_writes AS w LEFT JOIN checkpoints AS c ON c.thread_id = t.thread_id
        AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
    WHERE w.thread_id = t.thread_id
) AS w
"""
_KEYS = "unnest(%s::text[], %s::text[], %s::text[]) AS k (thread, space, id)"
_HERE = "thread_id = k.thread AND checkpoint_ns = k.space"
_ROW = f"""{_KEYS} CROSS JOIN LATERAL (
    SELECT * FROM checkpoints WHERE {_HERE} AND checkpoint_id = k.id LIMIT 1
) AS checkpoints"""
HEADS = f"""
SELECT thread_id, ARRAY(
    SELECT jsonb_build_array(task_id, idx, channel, {{path}}, octet_length(blob))
    FROM checkpoint_writes WHERE {_HERE} AND checkpoint_id = k.id
), {PostgresRows.columns} FROM {_ROW}
"""
CALLERS = """
SELECT DISTINCT thread_id, checkpoint_ns, coalesce(metadata -> 'parents' ->> '', '')
FROM checkpoints WHERE thread_id = ANY(%s) AND position(':' IN checkpoint_ns) > 0
"""
HOLDERS = """
SELECT DISTINCT thread_id FROM checkpoints WHERE thread_id = ANY(%s) AND checkpoint_id = ANY(%s)
"""
# The third column is a channel here: the newest checkpoint that values it by itself.
INLINE = f"""
SELECT k.thread, k.space, k.id, max(checkpoint_id COLLATE "C") FROM {_KEYS}
JOIN checkpoints ON {_HERE} WHERE (checkpoint -> 'channel_values' ->> k.id) IS NOT NULL
GROUP BY 1, 2, 3
"""
MARKS = f"""
SELECT DISTINCT k.thread, k.space, v.key FROM {_ROW}
CROSS JOIN LATERAL jsonb_each(checkpoint -> 'channel_values') AS v
WHERE v.value = 'true' AND NOT EXISTS (
    SELECT 1 FROM checkpoint_blobs AS b WHERE b.thread_id = k.thread AND b.checkpoint_ns = k.space
        AND b.channel = v.key AND b.version = checkpoint -> 'channel_versions' ->> v.key
        AND b.type <> 'empty' OFFSET 0
)
"""
COUNTED = f"""
SELECT DISTINCT thread_id, checkpoint_ns, jsonb_object_keys(counters) FROM (
    SELECT thread_id, checkpoint_ns,
        coalesce(metadata -> '{COUNTERS}', metadata -> '{COUNTERS_OF_OLD}') AS counters
    FROM checkpoints WHERE thread_id = ANY(%s)
) AS told WHERE jsonb_typeof(counters) = 'object'
"""
OWNED = f"""
SELECT k.thread, count(*) FROM {_KEYS} CROSS JOIN LATERAL (
    SELECT 1 FROM checkpoint_writes WHERE {_HERE} AND checkpoint_id = k.id OFFSET 0
) AS owned GROUP BY 1
"""
# Everything of the threads but what is named. `NOT IN` is a look into a hash, whatever is known of
# the tables; a join would be planned from guesses. Of many threads most rows have an id (a version)
# that is no part of any name, which one hash less deep tells.
_NAMED = "SELECT * FROM unnest(%({0}thread)s::text[], %({0}space)s::text[], %({0}id)s::text[])"
_PLACE = "(thread_id, checkpoint_ns, checkpoint_id)"
LOOSEN = f"""
UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE {_PLACE} IN ({_NAMED.format("loose_")})
"""
_ALL = "WHERE thread_id = ANY(%(threads)s) AND"
_OWNED = f"{_PLACE} NOT IN ({_NAMED.format('')})"
_PAIR = """(thread_id, checkpoint_ns, channel || '": "' || version)"""
_REST: dict[Table, tuple[str, str, str]] = {
    "checkpoints": (f"checkpoints {_ALL}", "checkpoint_id <> ALL(%(ids)s)", _OWNED),
    "blobs": (
        f"checkpoint_blobs {_ALL}",
        "version <> ALL(%(versions)s)",
        f"{_PAIR} NOT IN ({_NAMED.format('blob_')})",
    ),
    "writes": (f"checkpoint_writes {_ALL}", "checkpoint_id <> ALL(%(ids)s)", _OWNED),
}
CLEAR: dict[Table, str] = {
    table: f"DELETE FROM {rows} ({quick} OR {exact})"
    for table, (rows, quick, exact) in _REST.items()
}
# All of it at once: one trip to the server, which for many rows costs more than it saves.
CLEAR_ALL = f"""
WITH loosened AS ({LOOSEN}),
{", ".join(f"{t} AS (DELETE FROM {r} {exact} RETURNING 1)" for t, (r, _, exact) in _REST.items())}
SELECT {", ".join(f"(SELECT count(*) FROM {table})" for table in _REST)}
"""
