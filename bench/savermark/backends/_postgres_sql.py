"""The statements behind `PostgresStore`: set-based, and safe with values kept out of line (TOAST).

`octet_length(column)` and `pg_column_size(column)` answer from a row's own header. The size of a
whole row does not: it fetches every value, which costs several hundred times as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg

    from savermark.storage import Table


class Kept(NamedTuple):
    """One of the saver's tables: its name, its key after the thread id, and what it keeps."""

    name: str
    key: tuple[str, ...]
    payload: tuple[str, ...]
    channel: str


KEPT: Mapping[Table, Kept] = {
    "checkpoints": Kept(
        "checkpoints",
        ("checkpoint_ns", "checkpoint_id"),
        # As text the length is what was sent but for the order of keys; stored it is binary.
        ("checkpoint", "metadata"),
        "NULL",
    ),
    "blobs": Kept(
        "checkpoint_blobs", ("checkpoint_ns", "channel", "version"), ("blob",), "channel"
    ),
    "writes": Kept(
        "checkpoint_writes",
        ("checkpoint_ns", "checkpoint_id", "task_id", "idx"),
        ("blob",),
        "channel",
    ),
}
CLONED = tuple(kept.name for kept in KEPT.values())
OURS = (*CLONED, "checkpoint_migrations")


def listed(threads: Sequence[str] | None) -> dict[str, list[str]]:
    """The parameters of a query over these threads."""
    return {} if threads is None else {"threads": [str(thread) for thread in threads]}


def _where(threads: Sequence[str] | None) -> sql.SQL:
    return sql.SQL("" if threads is None else "WHERE thread_id = ANY(%(threads)s)")


def storage_query(table: Table, threads: Sequence[str] | None) -> sql.Composed:
    """Thread, namespace, channel, rows, logical and stored bytes of one table's groups."""
    kept = KEPT[table]
    text = "octet_length({}::text)" if table == "checkpoints" else "octet_length({})"
    return sql.SQL(
        "SELECT thread_id, checkpoint_ns, {channel}, count(*),"
        " sum({logical})::bigint, sum({stored})::bigint"
        " FROM {table} {where} GROUP BY 1, 2, 3"
    ).format(
        channel=sql.SQL(kept.channel),
        logical=_sum_of(text, kept.payload),
        stored=_sum_of("pg_column_size({})", kept.payload),
        table=sql.Identifier(kept.name),
        where=_where(threads),
    )


def _sum_of(template: str, columns: Sequence[str]) -> sql.Composed:
    # A blob may be NULL, which takes no bytes.
    parts = [sql.SQL(f"coalesce({template}, 0)").format(sql.Identifier(c)) for c in columns]
    return sql.SQL(" + ").join(parts)


def floor_query(threads: Sequence[str] | None) -> sql.Composed:
    """Thread, number and bytes of the distinct payloads of its writes, hashed on the server.

    Equal lengths come first in the group key, so the hash only has to tell equals from near misses.
    """
    return sql.SQL(
        "SELECT thread_id, count(*), sum(size)::bigint FROM ("
        " SELECT DISTINCT thread_id, type, octet_length(blob) AS size, sha256(blob)"
        " FROM checkpoint_writes {where}) AS payload GROUP BY thread_id"
    ).format(where=_where(threads))


def columns_of(connection: psycopg.Connection, table: Table) -> list[tuple[str, str]]:
    """Name and type of each column, in order: the saver's later versions may add some."""
    return connection.execute(
        "SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (KEPT[table].name,),
    ).fetchall()


def digest_query(
    table: Table, columns: Sequence[tuple[str, str]], threads: Sequence[str] | None
) -> sql.Composed:
    """Thread and SHA-256 over the sorted SHA-256 of its rows, each over every other column."""
    fields = [
        (sql.SQL("sha256({})") if kind == "bytea" else sql.SQL("{}")).format(sql.Identifier(name))
        for name, kind in columns
        if name != "thread_id"
    ]
    # The inner query, kept apart by OFFSET 0, hashes rows in parallel; the outer only sorts.
    return sql.SQL(
        "SELECT thread_id, sha256(string_agg(digest, ''::bytea ORDER BY digest)) FROM ("
        "SELECT thread_id, sha256(convert_to(ROW({fields})::text, 'UTF8')) AS digest"
        " FROM {table} {where} OFFSET 0) AS hashed GROUP BY thread_id"
    ).format(
        fields=sql.SQL(", ").join(fields),
        table=sql.Identifier(KEPT[table].name),
        where=_where(threads),
    )


def _names(columns: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def hold_query(table: Table) -> sql.Composed:
    """A temporary copy of the source threads' rows, each thread in key order."""
    kept = KEPT[table]
    return sql.SQL(
        "CREATE TEMPORARY TABLE held ON COMMIT DROP AS SELECT * FROM {table}"
        " WHERE thread_id = ANY(%(threads)s) ORDER BY thread_id, {key}"
    ).format(
        table=sql.Identifier(kept.name),
        key=_names(kept.key),
    )


def clone_query(table: Table, columns: Sequence[tuple[str, str]]) -> sql.Composed:
    """Insert every held thread's rows under its new ids.

    One thread after another, as conversations that were driven in turn would lie in the table;
    OFFSET 0 keeps the planner from joining the other way round.
    """
    rest = _names(name for name, _ in columns if name != "thread_id")
    return sql.SQL(
        "INSERT INTO {table} (thread_id, {rest}) SELECT wanted.id, {rest}"
        " FROM unnest(%(sources)s::text[], %(ids)s::text[]) AS wanted(source, id)"
        " CROSS JOIN LATERAL (SELECT {rest} FROM held"
        " WHERE held.thread_id = wanted.source OFFSET 0) AS held"
    ).format(table=sql.Identifier(KEPT[table].name), rest=rest)


THREADS_HELD = "SELECT count(DISTINCT thread_id) FROM checkpoints"

USED = sql.SQL("SELECT wanted FROM unnest(%(threads)s::text[]) AS wanted WHERE {}").format(
    sql.SQL(" OR ").join(
        sql.SQL("EXISTS (SELECT FROM {} WHERE thread_id = wanted)").format(
            sql.Identifier(kept.name)
        )
        for kept in KEPT.values()
    )
)

# Columns whose values the server compresses; text columns are keys, too short for it.
EXTENDED = """
SELECT c.relname::text, a.attname::text
FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
WHERE a.attrelid = ANY(%(tables)s::regclass[]) AND a.attnum > 0 AND NOT a.attisdropped
  AND a.attstorage = 'x' AND a.atttypid IN ('bytea'::regtype, 'jsonb'::regtype)
"""

# What takes each index of ours away and what brings it back, keys as constraints.
INDEXES = """
SELECT CASE WHEN con.oid IS NULL THEN format('DROP INDEX %%s', i.indexrelid::regclass)
            ELSE format('ALTER TABLE %%s DROP CONSTRAINT %%I', i.indrelid::regclass, con.conname)
       END,
       CASE WHEN con.oid IS NULL THEN pg_get_indexdef(i.indexrelid)
            ELSE format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', i.indrelid::regclass,
                        con.conname, pg_get_constraintdef(con.oid))
       END
FROM pg_index AS i LEFT JOIN pg_constraint AS con ON con.conindid = i.indexrelid
WHERE i.indrelid = ANY(%(tables)s::regclass[])
ORDER BY i.indrelid, i.indisprimary DESC, i.indexrelid
"""

SIZES = """
SELECT c.relname::text, pg_table_size(c.oid) - t.bytes, t.bytes, pg_indexes_size(c.oid),
       c.oid::bigint, c.reltoastrelid::bigint
FROM pg_class AS c
CROSS JOIN LATERAL (
    SELECT CASE WHEN c.reltoastrelid = 0 THEN 0 ELSE pg_total_relation_size(c.reltoastrelid) END
) AS t(bytes)
WHERE c.oid = ANY(%(tables)s::regclass[])
"""

FREE = """
SELECT wanted.name, sum(found.free_space + found.dead_tuple_len)::bigint
FROM unnest(%(names)s::text[], %(relations)s::oid[]) AS wanted(name, relation)
CROSS JOIN LATERAL pgstattuple(wanted.relation) AS found GROUP BY wanted.name
"""

# The same, passing over the pages that hold no dead rows: free space there is what is on the map.
FREE_ROUGHLY = FREE.replace("pgstattuple(", "pgstattuple_approx(").replace(
    "found.free_space", "found.approx_free_space"
)

# Every relation of ours that has pages: tables, their indexes, TOAST tables and its indexes.
_RELATIONS = """
WITH heap AS (
    SELECT oid, reltoastrelid FROM pg_class WHERE oid = ANY(%(tables)s::regclass[])
), tables AS (
    SELECT oid FROM heap UNION ALL SELECT reltoastrelid FROM heap WHERE reltoastrelid <> 0
), relations AS (
    SELECT oid FROM tables
    UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid IN (SELECT oid FROM tables)
)
"""

FILES = _RELATIONS + "SELECT pg_relation_filepath(oid) FROM relations"

# The server keeps other databases' pages: only ours go.
EVICT = (
    _RELATIONS
    + """
SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache
WHERE reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relfilenode IN (SELECT pg_relation_filenode(oid) FROM relations)
"""
)

AUTOVACUUM = """
SELECT sum(autovacuum_count)::bigint, sum(autoanalyze_count)::bigint FROM pg_stat_all_tables
WHERE relid IN (
    SELECT unnest(ARRAY[oid, reltoastrelid]) FROM pg_class
    WHERE oid = ANY(%(tables)s::regclass[])
)
"""

COLLATION = "SELECT datcollate FROM pg_database WHERE datname = current_database()"

SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "wal_compression",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
    "autovacuum_naptime",
    "jit",
    "default_toast_compression",
    "data_checksums",
)


def settings(connection: psycopg.Connection) -> dict[str, Any]:
    """The server settings that decide the numbers, as a new session would have them."""
    rows = connection.execute(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)",
        (list(SETTINGS),),
    ).fetchall()
    return dict(sorted(rows))
