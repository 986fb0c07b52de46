"""What the maintenance verbs do to a Postgres database besides deleting rows of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg import sql

from savermark.backends import _postgres_sql as queries
from savermark.backends import _postgres_upkeep as upkeep
from savermark.backends.shared import one_line
from savermark.database.base import Compaction
from savermark.errors import BackendError
from savermark.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.database.base import Threads

_HELD = "SELECT DISTINCT checkpoint_id FROM checkpoints WHERE checkpoint_id = ANY(%s)"
_HELD_BY = f"{_HELD} AND thread_id = ANY(%s)"
# The first savers' tables lack the column that today's read; a view of the session has it.
_WITH_PATH = """
CREATE TEMPORARY VIEW checkpoint_writes AS SELECT *, ''::text AS task_path FROM checkpoint_writes
"""
_WAIT = "10s"  # for a lock: whoever waits for ACCESS EXCLUSIVE makes all that come after wait too


def held(connection: psycopg.Connection[Any], ids: Collection[str], threads: Threads) -> set[str]:
    """Which of these checkpoint ids are stored, in these threads or anywhere."""
    # No stored text holds a NUL, and the server takes none.
    names = [name for name in ids if "\0" not in name]
    if threads is None:
        return {row[0] for row in connection.execute(_HELD, (names,))}
    return {row[0] for row in connection.execute(_HELD_BY, (names, list(threads)))}


def check_writable(connection: psycopg.Connection[Any]) -> None:
    """Raises `BackendError` for a session that may not write, or a role that may not delete."""
    try:
        for table in queries.CLONED:
            statement = sql.SQL("DELETE FROM {} WHERE false")
            connection.execute(statement.format(sql.Identifier(table)))
    except (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.InsufficientPrivilege) as error:
        raise BackendError(
            f"Postgres: {one_line(error)}: connect as the tables' owner, to a server that takes "
            "writes"
        ) from error


def reading_saver(
    connection: psycopg.Connection[Any], serde: SerializerProtocol | None, task_path: bool
) -> PostgresSaver:
    """A saver over a connection that from here on cannot write; it alters no table."""
    if not task_path:
        connection.execute(_WITH_PATH)
    connection.execute("SET default_transaction_read_only = on")
    return PostgresSaver(connection, serde=serde)


def compaction(connection: psycopg.Connection[Any], full: bool) -> Compaction:
    """What VACUUM would do to the tables."""
    sizes = connection.execute(queries.SIZES, {"tables": list(queries.CLONED)}).fetchall()
    largest = max((sum(row[1:4]) for row in sizes), default=0)
    if not full:
        return Compaction(
            statements=tuple(f"VACUUM (ANALYZE) {name}" for name in queries.CLONED),
            locks=(
                "SHARE UPDATE EXCLUSIVE on one table after the other: reads and writes go on; "
                "another vacuum, an index build or ALTER TABLE waits"
            ),
            needs="no disk space",
            gives=(
                "the space of dead rows for new ones; to the system only empty pages at a table's "
                "end (--full gives all of it back)"
            ),
            needed_bytes=0,
        )
    return Compaction(
        statements=tuple(f"VACUUM (FULL, ANALYZE) {name}" for name in queries.CLONED),
        locks=(
            "ACCESS EXCLUSIVE on one table after the other: every read and write of that table "
            f"waits until it is rewritten; gives up when the lock is not free within {_WAIT}"
        ),
        needs=(
            f"up to {format_bytes(largest)} of free disk space on the server: a copy of the "
            "largest table with its indexes"
        ),
        gives="all space that holds no row, to the system",
        needed_bytes=largest,
    )


def compact(connection: psycopg.Connection[Any], full: bool) -> list[str]:
    """VACUUM the tables one by one. Raises `BackendError` where the server skips one."""
    said: list[str] = []
    listen = lambda notice: said.append(notice.message_primary or "")  # noqa: E731
    connection.add_notice_handler(listen)
    options = "FULL, ANALYZE" if full else "ANALYZE"
    try:
        connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_WAIT)))
        for table in queries.CLONED:
            upkeep.vacuum(connection, options, [table])
            if skipped := [line for line in said if "skipping" in line]:
                raise BackendError(
                    f"Postgres left {table} as it was ({skipped[0]}): connect as the tables' owner"
                )
    finally:
        connection.remove_notice_handler(listen)
        if not connection.broken:
            connection.execute("RESET lock_timeout")
    return []
