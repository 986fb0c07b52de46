"""What `PostgresStore` does to its tables besides counting them: clone, vacuum, evict, describe."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from savermark.backends import _postgres_sql as queries
from savermark.backends.shared import check_targets, versions
from savermark.errors import BackendError
from savermark.storage import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from savermark.storage import Table

_EXTENSIONS = ("pgstattuple", "pg_buffercache")  # free space, and dropping cached pages
_EVICTS_SINCE = 170000  # server version


def add_extensions(connection: psycopg.Connection) -> None:
    """Install the extensions we measure with, where they exist and the role may."""
    for name in _EXTENSIONS:
        with suppress(psycopg.Error):
            connection.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(name)))


def has_extension(connection: psycopg.Connection, name: str) -> bool:
    """Whether `add_extensions` installed this one."""
    query = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = %s)"
    return connection.execute(query, (name,)).fetchone() == (True,)


def vacuum(
    connection: psycopg.Connection, options: str, tables: Sequence[str] = queries.OURS
) -> None:
    """VACUUM with these options, on our tables only."""
    names = sql.SQL(", ").join(map(sql.Identifier, tables))
    connection.execute(sql.SQL("VACUUM ({}) {}").format(sql.SQL(options), names))


def checkpoint(connection: psycopg.Connection) -> None:
    """Write dirty pages out, where the role may ask for it."""
    with suppress(psycopg.errors.InsufficientPrivilege):
        connection.execute("CHECKPOINT")


def clone(connection: psycopg.Connection, sources: Mapping[str, Sequence[str]]) -> int:
    """Copy threads under new ids in one transaction; returns the number of rows written.

    Raises `BackendError` for an id that is in use or wanted twice, and for a source without rows.
    """
    pairs = check_targets(sources)
    ids, olds = [new for new, _ in pairs], [old for _, old in pairs]
    with connection.transaction():
        _refuse(connection, ids, olds)
        with _bulk_indexes(connection, len(ids)), _as_compressed(connection):
            return sum(_clone_table(connection, table, olds, ids) for table in TABLES)


def _clone_table(
    connection: psycopg.Connection, table: Table, olds: list[str], ids: list[str]
) -> int:
    connection.execute(queries.hold_query(table), queries.listed(sorted(set(olds))))
    connection.execute("CREATE INDEX ON held (thread_id)")
    connection.execute("ANALYZE held")
    columns = queries.columns_of(connection, table)
    written = connection.execute(
        queries.clone_query(table, columns), {"sources": olds, "ids": ids}
    ).rowcount
    connection.execute("DROP TABLE held")
    return written


def _refuse(connection: psycopg.Connection, ids: list[str], olds: list[str]) -> None:
    used = connection.execute(queries.USED, queries.listed(ids)).fetchone()
    if used:
        raise BackendError(f"thread {used[0]!r} already holds rows: clone to an unused thread id")
    wanted = set(olds)
    held = {row[0] for row in connection.execute(queries.USED, queries.listed(sorted(wanted)))}
    if missing := sorted(wanted - held):
        raise BackendError(f"thread {missing[0]!r} holds no rows to clone: drive it first")


@contextmanager
def _bulk_indexes(connection: psycopg.Connection, clones: int) -> Iterator[None]:
    """Where more threads come than there are, build the indexes afterwards, as they were."""
    held = connection.execute(queries.THREADS_HELD).fetchone()
    if held is not None and held[0] > clones:
        yield
        return
    indexes = connection.execute(queries.INDEXES, {"tables": list(queries.CLONED)}).fetchall()
    for remove, _ in indexes:
        connection.execute(remove)
    yield
    connection.execute("SET LOCAL maintenance_work_mem = '256MB'")
    for _, restore in indexes:
        connection.execute(restore)


@contextmanager
def _as_compressed(connection: psycopg.Connection) -> Iterator[None]:
    """Inside, values are stored as they come: compressed or, where that had not helped, not.

    Otherwise the server would try in vain to compress each copy of such a value again.
    """
    columns = connection.execute(queries.EXTENDED, {"tables": list(queries.CLONED)}).fetchall()
    for storage in ("EXTERNAL", "EXTENDED"):
        for table, column in columns:
            connection.execute(
                sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET STORAGE {}").format(
                    sql.Identifier(table), sql.Identifier(column), sql.SQL(storage)
                )
            )
        if storage == "EXTERNAL":
            yield


def evicts(connection: psycopg.Connection) -> bool:
    """Whether our pages can be taken out of the server's buffers."""
    new_enough = connection.info.server_version >= _EVICTS_SINCE
    return new_enough and has_extension(connection, "pg_buffercache")


def evict(connection: psycopg.Connection, tables: Sequence[str] = queries.OURS) -> None:
    """Take our pages, and no others, out of the server's buffers."""
    connection.execute(queries.EVICT, {"tables": list(tables)})


def forget_files(connection: psycopg.Connection, tables: Sequence[str] = queries.OURS) -> None:
    """Take our tables' files out of the system's page cache, where the system can."""
    folder = connection.execute("SELECT current_setting('data_directory')").fetchone()
    if folder is None or not hasattr(os, "posix_fadvise"):
        return
    for (path,) in connection.execute(queries.FILES, {"tables": list(tables)}).fetchall():
        first = Path(folder[0]) / path
        # A relation has further segments (.1) and forks (_fsm, _vm).
        for file in first.parent.glob(f"{first.name}*"):
            if file.name[len(first.name) :][:1] in ("", ".", "_"):
                _forget(file)


def _forget(file: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def free_bytes(
    connection: psycopg.Connection, sizes: Sequence[tuple[Any, ...]], *, roughly: bool = False
) -> list[tuple[str, int]]:
    """Free and dead bytes of each table with its TOAST; nothing without the extension.

    `roughly` reads only the pages that may hold dead rows.
    """
    if not has_extension(connection, "pgstattuple"):
        return []
    relations = [(row[0], oid) for row in sizes for oid in row[4:6] if oid]
    names, oids = zip(*relations, strict=True)
    return connection.execute(
        queries.FREE_ROUGHLY if roughly else queries.FREE,
        {"names": list(names), "relations": list(oids)},
    ).fetchall()


def wal_position(connection: psycopg.Connection) -> str | None:
    """Where the server's write-ahead log stands."""
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    return None if row is None else str(row[0])


def wal_since(connection: psycopg.Connection, start: str | None) -> int | None:
    """Bytes of write-ahead log that the whole server wrote since `start`; None without one."""
    query = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)::bigint"
    row = connection.execute(query, (start,)).fetchone()
    return None if row is None else row[0]


def server_facts(
    connection: psycopg.Connection, tables: Sequence[str] = queries.OURS
) -> dict[str, Any]:
    """Versions and settings of server and driver, and what autovacuum did to our tables."""
    vacuums, analyzes = connection.execute(
        queries.AUTOVACUUM, {"tables": list(tables)}
    ).fetchone() or (0, 0)
    collation = connection.execute(queries.COLLATION).fetchone()
    info = connection.info
    return {
        "server": info.parameter_status("server_version"),
        "versions": versions("langgraph-checkpoint-postgres", "langgraph-checkpoint", "psycopg"),
        "driver": f"psycopg {psycopg.pq.__impl__}",
        "transport": "Unix socket" if info.host.startswith("/") else _network(info),
        "collation": collation[0] if collation else None,
        "autovacuum_runs": vacuums or 0,
        "autoanalyze_runs": analyzes or 0,
        **queries.settings(connection),
    }


def _network(info: psycopg.ConnectionInfo) -> str:
    return "TCP with TLS" if info.pgconn.ssl_in_use else "TCP"
