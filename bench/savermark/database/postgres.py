"""A Postgres database of LangGraph's savers, opened as it is, by any connection string of libpq."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from savermark.backends import _postgres_sql as queries
from savermark.backends import _postgres_upkeep as upkeep
from savermark.backends.postgres_place import told
from savermark.backends.shared import one_line
from savermark.database import postgres_upkeep as maintain
from savermark.database.base import Facts
from savermark.database.postgres_passes import PostgresReading
from savermark.errors import BackendError, Unsupported
from savermark.history.postgres import PostgresRows
from savermark.storage import FootprintRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.database.base import Compaction, Threads
    from savermark.history.rows import RowAccess
    from savermark.storage import Table

_COLUMNS = """
SELECT c.relname::text, array_agg(a.attname::text) FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.oid = ANY (SELECT to_regclass(name) FROM unnest(%s::text[]) AS name) GROUP BY 1
"""
_NEEDED = {
    "checkpoints": {"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint", "metadata"},
    "checkpoint_blobs": {"thread_id", "checkpoint_ns", "channel", "version", "type", "blob"},
    "checkpoint_writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "blob"},
}
_DEAD = """
SELECT relname::text, n_live_tup::bigint, n_dead_tup::bigint FROM pg_stat_all_tables
WHERE relid = ANY (%s::regclass[])
"""
_SETTINGS = ("jit = off", "work_mem = '64MB'", "parallel_setup_cost = 0", "parallel_tuple_cost = 0")


class PostgresDatabase:
    """One connection (see `base.Database`). The tables are those its search path finds."""

    def __init__(self, dsn: str, *, write: bool = False) -> None:
        self._dsn = dsn
        self._lock = threading.Lock()
        with told(dsn):
            self._connection = _open(dsn, write)
        try:
            with self._told():
                columns = self._check()
        except BaseException:
            self._connection.close()
            raise
        info = self._connection.info
        self._facts = Facts(
            address=f"{info.dbname} on {_host(info)}",
            engine=f"PostgreSQL {info.parameter_status('server_version')}",
            saver="PostgresSaver",
            task_path="task_path" in columns["checkpoint_writes"],
            writable=write,
        )
        self._rows = PostgresRows(self._connection, self._lock)

    @property
    def facts(self) -> Facts:
        """What was opened."""
        return self._facts

    @property
    def rows(self) -> RowAccess:
        """The rows of threads, over this connection."""
        return self._rows

    def saver(self, serde: SerializerProtocol | None = None) -> BaseCheckpointSaver[Any]:
        """A `PostgresSaver` on this connection, sharing the lock of `rows`."""
        from langgraph.checkpoint.postgres import PostgresSaver

        if not self._facts.writable:
            raise Unsupported("the database is open for reading only: open it with write=True")
        saver = PostgresSaver(self._connection, serde=serde)
        saver.lock = self._lock
        return saver

    @contextmanager
    def reader(self, serde: SerializerProtocol | None = None) -> Iterator[BaseCheckpointSaver[Any]]:
        """A `PostgresSaver` on a session of its own that cannot write."""
        with told(self._dsn):
            connection = _open(self._dsn, write=True)
        with closing(connection):
            with self._told():
                saver = maintain.reading_saver(connection, serde, self._facts.task_path)
            yield saver

    def check_writable(self) -> None:
        """Try a deletion of nothing, and undo it."""
        with self._told():
            maintain.check_writable(self._connection)

    def held(self, checkpoint_ids: Collection[str], threads: Threads = None) -> set[str]:
        """Which of these checkpoint ids are stored."""
        with self._told():
            return maintain.held(self._connection, checkpoint_ids, threads)

    def compaction(self, *, full: bool = False) -> Compaction:
        """VACUUM of our tables, or VACUUM FULL."""
        with self._told():
            return maintain.compaction(self._connection, full)

    def compact(self, *, full: bool = False) -> list[str]:
        """VACUUM of our tables, or VACUUM FULL."""
        with self._told():
            return maintain.compact(self._connection, full)

    @contextmanager
    def reading(self) -> Iterator[PostgresReading]:
        """One snapshot, REPEATABLE READ and READ ONLY."""
        with self._told(), self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            for setting in _SETTINGS:
                self._connection.execute(sql.SQL(f"SET LOCAL {setting}"))
            yield PostgresReading(self._connection, task_path=self._facts.task_path)

    def footprint(self) -> list[FootprintRow]:
        """Heap, TOAST and index bytes of each table, their total, and what of them is free.

        What is free is told where the extension pgstattuple is installed; else it is left out.
        """
        tables = {kept.name: table for table, kept in queries.KEPT.items()}
        with self._told():
            sizes = self._connection.execute(
                queries.SIZES, {"tables": list(queries.CLONED)}
            ).fetchall()
            free = []
            with suppress(psycopg.errors.InsufficientPrivilege):
                free = upkeep.free_bytes(self._connection, sizes, roughly=True)
        parts = [
            FootprintRow(component, tables.get(row[0]), size)
            for row in sizes
            for component, size in zip(("heap", "toast", "index"), row[1:4], strict=True)
        ]
        return [
            *parts,
            *(FootprintRow("free", tables.get(name), size) for name, size in free),
            FootprintRow("total", None, sum(part.bytes for part in parts)),
        ]

    def dead_rows(self) -> dict[Table, tuple[int, int]]:
        """Live and dead rows of each table as the server's statistics estimate them."""
        tables = {kept.name: table for table, kept in queries.KEPT.items()}
        with self._told():
            found = self._connection.execute(_DEAD, (list(queries.CLONED),)).fetchall()
        return {tables[name]: (live, dead) for name, live, dead in found}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise BackendError(f"Postgres: {one_line(error)}") from error

    def _check(self) -> dict[str, set[str]]:
        found = self._connection.execute(_COLUMNS, (list(_NEEDED),)).fetchall()
        columns = {name: set(names) for name, names in found}
        where = self._connection.info.dbname
        if lacking := [table for table in _NEEDED if table not in columns]:
            raise BackendError(
                f"the database {where} has no table {' and no table '.join(lacking)}: name the one "
                "that PostgresSaver set up (another schema goes into options=-csearch_path=NAME)"
            )
        for table, needed in _NEEDED.items():
            if missing := sorted(needed - columns[table]):
                raise Unsupported(
                    f"the table {table} of {where} has no column {', '.join(missing)}; "
                    "this layout is not known to savermark"
                )
        return columns


def _open(dsn: str, write: bool) -> psycopg.Connection[Any]:
    """A connection that commits each statement; without `write` its transactions are read-only."""
    parameters = conninfo_to_dict(dsn)
    options = str(parameters.get("options") or "")
    if not write:
        options = f"{options} -c default_transaction_read_only=on".strip()
    name = parameters.get("application_name") or "savermark"
    return psycopg.connect(dsn, autocommit=True, options=options, application_name=str(name))


def _host(info: psycopg.ConnectionInfo) -> str:
    return "this machine" if info.host.startswith("/") else f"{info.host}:{info.port}"
