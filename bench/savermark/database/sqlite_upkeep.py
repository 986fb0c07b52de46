"""What the maintenance verbs do to a SQLite file besides deleting rows of threads."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.sqlite import SqliteSaver

from savermark.database.base import Compaction
from savermark.errors import BackendError
from savermark.units import format_bytes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection
    from pathlib import Path

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.database.base import Threads

# Both read the primary key's index alone.
_HELD = """
SELECT DISTINCT checkpoint_id FROM main.checkpoints
WHERE checkpoint_id IN (SELECT value FROM json_each(?))
"""
_HELD_BY = f"{_HELD} AND thread_id = ?"


def held(connection: sqlite3.Connection, ids: Collection[str], threads: Threads) -> set[str]:
    """Which of these checkpoint ids are stored, in these threads or anywhere."""
    given = json.dumps(sorted(ids))
    if threads is None:
        return {row[0] for row in connection.execute(_HELD, (given,))}
    return {row[0] for name in threads for row in connection.execute(_HELD_BY, (given, name))}


def check_writable(connection: sqlite3.Connection) -> None:
    """Raises what SQLite raises where the file cannot be written now."""
    # On a file that may not be written BEGIN IMMEDIATE alone succeeds.
    connection.execute("BEGIN IMMEDIATE")
    try:
        for table in ("checkpoints", "writes"):
            connection.execute(f"DELETE FROM main.{table} WHERE 0")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def reading_saver(
    connection: sqlite3.Connection, serde: SerializerProtocol | None, task_path: bool
) -> SqliteSaver:
    """A saver over a connection that cannot write; it alters no table."""
    saver = SqliteSaver(connection, serde=serde)
    saver.is_setup = True
    saver._has_task_path = task_path  # what its set-up finds out where it may not alter the file
    return saver


def compaction(connection: sqlite3.Connection, path: Path) -> Compaction:
    """What VACUUM would do to this file."""
    pages, free, size = (
        _number(connection, f"PRAGMA {name}")
        for name in ("page_count", "freelist_count", "page_size")
    )
    needed = 2 * (pages - free) * size
    return Compaction(
        statements=("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")[: 1 + _has_wal(connection)],
        locks=(
            "an exclusive lock on the whole file from beginning to end: every other connection "
            "that writes waits, and outside WAL mode every one that reads"
        ),
        needs=(
            f"up to {format_bytes(needed)} of free disk space: a copy of the file in SQLite's "
            "temporary folder, and once more beside the file"
        ),
        gives=f"{format_bytes(free * size)} in free pages, and what half-empty pages hold",
        needed_bytes=needed,
        free_disk_bytes=shutil.disk_usage(path.absolute().parent).free,
    )


def compact(connection: sqlite3.Connection, path: Path) -> list[str]:
    """VACUUM, and in WAL mode what makes it show on disk; what is worth knowing afterwards."""
    if connection.in_transaction:
        raise BackendError(f"{path.name}: the connection is inside a transaction: commit it first")
    connection.execute("VACUUM")
    if not _has_wal(connection):
        return []
    busy, log, moved = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if not busy:
        return []
    return [
        f"another connection still uses the WAL ({moved} of {log} pages moved), so the file "
        "shrinks when that one ends its read and SQLite next makes a checkpoint"
    ]


def _has_wal(connection: sqlite3.Connection) -> bool:
    return bool(_value(connection, "PRAGMA journal_mode") == "wal")


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(_value(connection, query))


def _value(connection: sqlite3.Connection, query: str) -> Any:
    return connection.execute(query).fetchone()[0]
