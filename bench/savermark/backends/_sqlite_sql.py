"""The statements of the SQLite backend. Every function works on an open connection."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from savermark.backends._sqlite_sizes import SqliteTable, pragma
from savermark.errors import BackendError
from savermark.storage import FootprintRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KEYS: dict[SqliteTable, str] = {
    "checkpoints": "checkpoint_ns, checkpoint_id",
    "writes": "checkpoint_ns, checkpoint_id, task_id, idx",
}


def check_tables(connection: sqlite3.Connection) -> None:
    """Raises `sqlite3.OperationalError` ("no such table") if a saver never set the file up."""
    for table in KEYS:
        connection.execute(f"SELECT 1 FROM main.{table} LIMIT 1").fetchone()


@contextmanager
def selected(connection: sqlite3.Connection, threads: Sequence[str] | None) -> Iterator[str]:
    """One read transaction, and the WHERE clause that selects `threads` in it.

    The ids go through a temporary table: a statement takes only so many parameters.
    """
    if threads is not None:
        connection.execute(
            "CREATE TEMP TABLE IF NOT EXISTS wanted (thread_id TEXT PRIMARY KEY) WITHOUT ROWID"
        )
    connection.execute("BEGIN")
    try:
        if threads is not None:
            connection.execute("DELETE FROM temp.wanted")
            connection.executemany(
                "INSERT OR IGNORE INTO temp.wanted VALUES (?)", ((thread,) for thread in threads)
            )
        yield "" if threads is None else "WHERE thread_id IN (SELECT thread_id FROM temp.wanted)"
    finally:
        connection.execute("ROLLBACK")


def holders(connection: sqlite3.Connection, where: str) -> set[str]:
    """The threads that hold checkpoints."""
    found = connection.execute(f"SELECT DISTINCT thread_id FROM main.checkpoints {where}")
    return {thread for (thread,) in found}


def write_values(connection: sqlite3.Connection, where: str) -> Iterator[tuple[str, str, bytes]]:
    """(thread, type tag, value) of every write in thread order."""
    return connection.execute(
        "SELECT thread_id, ifnull(type, ''), ifnull(CAST(value AS BLOB), x'') "
        f"FROM main.writes {where} ORDER BY thread_id"
    )


def _columns(connection: sqlite3.Connection, table: SqliteTable) -> str:
    """All columns but the thread id: files of older savers have no `task_path`."""
    names = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
    return ", ".join(name for name in names if name != "thread_id")


def ordered_rows(
    connection: sqlite3.Connection, table: SqliteTable, where: str
) -> Iterator[tuple[Any, ...]]:
    """Every row, thread id first, in key order."""
    return connection.execute(
        f"SELECT thread_id, {_columns(connection, table)} FROM main.{table} {where} "
        f"ORDER BY thread_id, {KEYS[table]}"
    )


def has_dbstat(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite can tell the pages of tables and indexes apart."""
    option = "SELECT sqlite_compileoption_used('ENABLE_DBSTAT_VTAB')"
    return bool(connection.execute(option).fetchone()[0])


def footprint(
    connection: sqlite3.Connection,
    file_bytes: int,
    wal_bytes: int,
    tables: Mapping[str, Any] | None = None,
) -> list[FootprintRow]:
    """Heap and index by table where the engine can tell, and the rest of the file as heap.

    `tables` maps a table's name in the file to what it is called here.
    """
    known = tables or {name: name for name in KEYS}
    rows = []
    if has_dbstat(connection):
        rows = [
            FootprintRow("heap" if kind == "table" else "index", known[table], size)
            for kind, table, size in connection.execute(
                "SELECT s.type, s.tbl_name, sum(d.pgsize) FROM dbstat AS d "
                "JOIN main.sqlite_master AS s ON s.name = d.name "
                "WHERE d.aggregate = 1 GROUP BY 1, 2"
            )
            if table in known
        ]
    rest = file_bytes - sum(row.bytes for row in rows)
    free = pragma(connection, "freelist_count") * pragma(connection, "page_size")
    return [
        *rows,
        FootprintRow("heap", None, rest),  # schema, statistics and free pages
        FootprintRow("wal", None, wal_bytes),
        FootprintRow("free", None, free),
        FootprintRow("file", None, file_bytes),
        FootprintRow("total", None, file_bytes),
    ]


def clone(connection: sqlite3.Connection, pairs: Sequence[tuple[str, str]]) -> int:
    """Insert every source's rows under its targets, given as (target, source) by target."""
    mode = _relax(connection)
    try:
        connection.execute("BEGIN IMMEDIATE")
        _stage(connection, pairs)
        written = sum(_insert(connection, table) for table in KEYS)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # the first error is the one to tell
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            pragma(connection, f"main.journal_mode={mode}")
        raise
    if pragma(connection, f"main.journal_mode={mode}") != mode:
        raise BackendError(f"another connection keeps the journal out of {mode} mode: close it")
    check_tables(connection)  # a first read ends the lock that the change of mode leaves behind
    # The size the WAL reached here is the bulk load's, not the workload's.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return written


def _relax(connection: sqlite3.Connection) -> str:
    """Trade durability for speed on this connection; returns the journal mode to go back to.

    A rollback journal in memory writes each page once where the WAL writes it twice, and still
    undoes a failed clone. Other open connections forbid the change: then it stays the WAL.
    """
    for setting in ("temp_store=MEMORY", "cache_size=-131072", "synchronous=OFF"):
        connection.execute(f"PRAGMA {setting}").fetchall()
    mode = str(pragma(connection, "journal_mode"))
    connection.execute("PRAGMA busy_timeout=0").fetchall()
    try:
        connection.execute("PRAGMA main.journal_mode=MEMORY").fetchall()
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
    connection.execute("PRAGMA busy_timeout=5000").fetchall()
    return mode


def _stage(connection: sqlite3.Connection, pairs: Sequence[tuple[str, str]]) -> None:
    """Lay targets and source rows in temporary tables; refuse used targets, unused sources."""
    connection.execute(
        "CREATE TEMP TABLE targets (target TEXT PRIMARY KEY, source TEXT) WITHOUT ROWID"
    )
    connection.executemany("INSERT INTO temp.targets VALUES (?, ?)", pairs)
    for table, key in KEYS.items():
        used = connection.execute(
            "SELECT target FROM temp.targets "
            f"WHERE EXISTS (SELECT 1 FROM main.{table} WHERE thread_id = target)"
        ).fetchone()
        if used:
            raise BackendError(f"clone target {used[0]!r} holds rows: choose an unused id")
        connection.execute(
            f"CREATE TEMP TABLE source_{table} AS SELECT * FROM main.{table} "
            f"WHERE thread_id IN (SELECT source FROM temp.targets) ORDER BY thread_id, {key}"
        )
        connection.execute(f"CREATE INDEX temp.of_{table} ON source_{table} (thread_id)")
    unused = connection.execute(
        "SELECT source FROM temp.targets "
        "WHERE source NOT IN (SELECT thread_id FROM temp.source_checkpoints)"
    ).fetchone()
    if unused:
        raise BackendError(f"clone source {unused[0]!r} holds no rows: drive it first")


def _insert(connection: sqlite3.Connection, table: SqliteTable) -> int:
    """All rows of one table in ascending key order, so that the index only grows at its end."""
    columns = _columns(connection, table)
    return connection.execute(
        f"INSERT INTO main.{table} (thread_id, {columns}) "
        f"SELECT t.target, {', '.join('s.' + name for name in columns.split(', '))} "
        f"FROM temp.targets AS t CROSS JOIN temp.source_{table} AS s ON s.thread_id = t.source"
    ).rowcount
