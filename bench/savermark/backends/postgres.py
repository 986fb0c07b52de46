"""PostgreSQL through `PostgresSaver` and `AsyncPostgresSaver`.

Opened as `from_conn_string`, the way the saver's documentation shows: one connection that commits
each statement, prepares from the first use on (`prepare_threshold=0`) and gives rows as
dictionaries, without a standing pipeline (the saver opens one for each `put` by itself). A pool
would change little here, since the saver holds a lock of its own around every call.

Stores live in a database of their own (`postgres_place`) on the server that `serve` provides.
"""

from __future__ import annotations

import hashlib
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg.rows import dict_row

from savermark.backends import _postgres_sql as queries
from savermark.backends import _postgres_upkeep as upkeep
from savermark.backends.base import Backend, Capability, Location, Store
from savermark.backends.postgres_place import (
    Place,
    create_place,
    drop_place,
    find_place,
    mark_place,
    told,
)
from savermark.backends.postgres_server import is_embedded, serve
from savermark.backends.shared import with_zero_rows
from savermark.errors import BackendError
from savermark.storage import TABLES, FloorRow, FootprintRow, StorageRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from langgraph.checkpoint.serde.base import SerializerProtocol

# Tables are read once and whole, and the expressions over them cost more than the planner thinks:
# compiling would cost more than it saves, and the rows go to as many workers as there are.
_PASS_SETTINGS = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL jit = off",
    "SET LOCAL work_mem = '64MB'",
    "SET LOCAL parallel_setup_cost = 0",
    "SET LOCAL parallel_tuple_cost = 0",
)
# From here on, the named threads are looked for in one parallel scan; index scans are serial.
_MANY_THREADS = 1_000
_SCAN_SETTINGS = ("SET LOCAL enable_indexscan = off", "SET LOCAL enable_bitmapscan = off")


class PostgresStore(Store):
    """One database (or schema) with the saver's tables, and a connection for measuring it."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset(Capability)

    def __init__(self, location: Location, place: Place) -> None:
        self.location = location
        self._place = place
        self._open: psycopg.Connection | None = None
        self._embedded = is_embedded(place.server_dsn)
        self._serializer = JsonPlusSerializer.__name__

    @contextmanager
    def saver(self, serde: SerializerProtocol | None = None) -> Iterator[PostgresSaver]:
        """A `PostgresSaver` on a connection of its own, as `from_conn_string` opens it."""
        with (
            told(self._place.dsn),
            psycopg.Connection.connect(
                self._place.dsn, autocommit=True, prepare_threshold=0, row_factory=dict_row
            ) as connection,
        ):
            saver = PostgresSaver(connection, serde=serde)
            self._serializer = type(saver.serde).__name__
            yield saver

    @asynccontextmanager
    async def asaver(
        self, serde: SerializerProtocol | None = None
    ) -> AsyncIterator[AsyncPostgresSaver]:
        """An `AsyncPostgresSaver` on a connection of its own."""
        with told(self._place.dsn):
            async with await psycopg.AsyncConnection.connect(
                self._place.dsn, autocommit=True, prepare_threshold=0, row_factory=dict_row
            ) as connection:
                saver = AsyncPostgresSaver(connection, serde=serde)
                self._serializer = type(saver.serde).__name__
                yield saver

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        with told(self._place.dsn):
            if self._open is None or self._open.closed:
                self._open = psycopg.connect(self._place.dsn, autocommit=True)
            yield self._open

    @contextmanager
    def _pass(self, threads: Sequence[str] | None) -> Iterator[psycopg.Connection]:
        """One snapshot for several statements, so that their sums agree."""
        scan = _SCAN_SETTINGS if threads and len(threads) >= _MANY_THREADS else ()
        with self._connection() as connection, connection.transaction():
            connection.execute("; ".join((*_PASS_SETTINGS, *scan)))
            yield connection

    def storage(self, threads: Sequence[str] | None = None) -> list[StorageRow]:
        """Rows and bytes by thread, namespace, table and channel: three statements."""
        with self._pass(threads) as connection:
            rows = [
                StorageRow(thread, ns, table, channel, count, logical, stored)
                for table in TABLES
                for thread, ns, channel, count, logical, stored in connection.execute(
                    queries.storage_query(table, threads), queries.listed(threads)
                )
            ]
        return with_zero_rows(rows, threads)

    def floor(self, threads: Sequence[str] | None = None) -> list[FloorRow]:
        """The distinct writes of each thread, told apart by a hash on the server."""
        with self._pass(threads) as connection:
            found = connection.execute(queries.floor_query(threads), queries.listed(threads))
            rows = [FloorRow(*row) for row in found]
            missing = set(threads or ()) - {row.thread_id for row in rows}
            if missing:
                # Of these, the ones that hold checkpoints but no writes have no row.
                used = connection.execute(queries.USED, queries.listed(sorted(missing)))
                missing -= {thread for (thread,) in used}
        return rows + [FloorRow(thread, 0, 0) for thread in sorted(missing)]

    def footprint(self) -> list[FootprintRow]:
        """Heap, TOAST and index bytes of each table, what of them is free, their total, and WAL.

        `wal` is what the whole server wrote since the store was created. It is no part of
        `total`: the server uses those files again.
        """
        tables = {kept.name: table for table, kept in queries.KEPT.items()}
        with self._connection() as connection:
            sizes = connection.execute(queries.SIZES, {"tables": list(queries.OURS)}).fetchall()
            free = upkeep.free_bytes(connection, sizes) if self._owns_database else []
            wal = upkeep.wal_since(connection, self._place.marker.get("lsn"))
        parts = [
            FootprintRow(component, tables.get(row[0]), size)
            for row in sizes
            for component, size in zip(("heap", "toast", "index"), row[1:4], strict=True)
        ]
        return [
            *parts,
            *(FootprintRow("free", tables.get(name), size) for name, size in free),
            *([] if wal is None else [FootprintRow("wal", None, wal)]),
            FootprintRow("total", None, sum(part.bytes for part in parts)),
        ]

    def row_digests(self, threads: Sequence[str] | None = None) -> dict[str, str]:
        """SHA-256 over every row of each thread, hashed and ordered on the server."""
        parts: dict[str, dict[str, bytes]] = {}
        with self._pass(threads) as connection:
            for table in TABLES:
                columns = queries.columns_of(connection, table)
                query = queries.digest_query(table, columns, threads)
                for thread, digest in connection.execute(query, queries.listed(threads)):
                    parts.setdefault(thread, {})[table] = digest
        wanted = parts if threads is None else dict.fromkeys(threads)
        nothing = bytes(hashlib.sha256().digest_size)
        return {
            thread: hashlib.sha256(
                b"".join(parts.get(thread, {}).get(table, nothing) for table in TABLES)
            ).hexdigest()
            for thread in wanted
        }

    def compact(self) -> None:
        """VACUUM FULL: rewrites the tables and gives the space back to the system."""
        with self._connection() as connection:
            upkeep.vacuum(connection, "FULL, ANALYZE")

    def settle(self) -> None:
        """VACUUM (ANALYZE) of our tables, and a checkpoint where the role may ask for one."""
        with self._connection() as connection:
            upkeep.vacuum(connection, "ANALYZE")
            upkeep.checkpoint(connection)

    def drop_caches(self) -> None:
        """Evict our pages from the server's buffers and, where it is embedded, from the system's.

        Where that is not allowed only connections are fresh; `describe()["caches"]` says which.
        """
        with self._connection() as connection:
            if self._evicts(connection):
                upkeep.evict(connection)
            if self._embedded:
                upkeep.forget_files(connection)
        self.close()

    def clone_threads(self, sources: Mapping[str, Sequence[str]]) -> int:
        """INSERT ... SELECT on the server, one statement a table; all or nothing."""
        with self._connection() as connection:
            return upkeep.clone(connection, sources)

    def describe(self) -> dict[str, Any]:
        """Server, driver and saver versions, and the settings that decide the numbers."""
        with self._connection() as connection:
            caches = ["server's buffers"] if self._evicts(connection) else []
            facts = upkeep.server_facts(connection)
        caches += ["system's page cache"] if self._embedded else []
        return {
            "backend": "postgres",
            "saver": "PostgresSaver / AsyncPostgresSaver",
            "serializer": self._serializer,
            **facts,
            "embedded": self._embedded,
            "place": self._place.kind,
            "connection": "one for each saver, as from_conn_string opens it",
            "pool": False,
            "pipeline": False,
            "prepare_threshold": 0,
            "caches": " and ".join([*caches, "connections"]),
        }

    def close(self) -> None:
        """Close the measuring connection; the next use opens another."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def destroy(self) -> None:
        """Drop the database or schema that `create` made."""
        self.close()
        drop_place(self._place)

    def prepare(self) -> None:
        """Set up the saver's tables and our extensions; WAL counts from here on."""
        with self.saver() as saver:
            saver.setup()
        with self._connection() as connection:
            if self._owns_database:
                upkeep.add_extensions(connection)
            marker = {**self._place.marker, "lsn": upkeep.wal_position(connection)}
            self._place = mark_place(connection, self._place, marker)

    @property
    def _owns_database(self) -> bool:
        # In a schema the database is another's: no extension goes there, nor is one relied on.
        return self._place.kind == "database"

    def _evicts(self, connection: psycopg.Connection) -> bool:
        return self._owns_database and upkeep.evicts(connection)


class PostgresBackend(Backend):
    """A real PostgreSQL: embedded by default, or the server that the user names."""

    name: ClassVar[str] = "postgres"
    distribution: ClassVar[str] = "langgraph-checkpoint-postgres"
    title: ClassVar[str] = "PostgreSQL, embedded or yours (--dsn): checkpoints, blobs and writes"
    store_type: ClassVar[type[Store]] = PostgresStore

    @classmethod
    def service(cls, folder: Path, dsn: str | None = None) -> AbstractContextManager[str]:
        """A server for one run (`postgres_server.serve`)."""
        return serve(folder, dsn)

    @classmethod
    def create(cls, location: Location) -> PostgresStore:
        """A database of our own with empty tables."""
        store = PostgresStore(location, create_place(_server(location), location.name))
        try:
            store.prepare()
        except BaseException:
            store.destroy()
            raise
        return store

    @classmethod
    def attach(cls, location: Location) -> PostgresStore:
        """The database that `create` made under this name on this server."""
        return PostgresStore(location, find_place(_server(location), location.name))


def _server(location: Location) -> str:
    if location.dsn is None:
        raise BackendError("postgres needs a server: open its service, or name one with --dsn")
    return location.dsn
