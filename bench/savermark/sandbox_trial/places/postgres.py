"""The checkpoint store in Postgres: a database of our own on a server of the run."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo

from savermark.backends import _postgres_sql as queries
from savermark.backends import _postgres_upkeep as upkeep
from savermark.backends.postgres_place import (
    Place as ServerPlace,
)
from savermark.backends.postgres_place import connected, create_place, drop_place, find_place
from savermark.backends.postgres_server import is_embedded, serve
from savermark.errors import BackendError
from savermark.sandbox.postgres import PostgresSandboxStore
from savermark.sandbox_trial.places.base import KEPT, TABLE_NAMES, StorePlace
from savermark.storage import SHARED, FootprintRow, StorageRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from savermark.storage import SandboxTable

_POOL = 8


class PostgresPlace(StorePlace):
    """A database (or schema) with the store's tables; a new connection for each measurement."""

    service_name = "postgres"

    @classmethod
    def service(
        cls, folder: Path, given: Mapping[str, str | None]
    ) -> AbstractContextManager[str | None]:
        """The user's server, or an embedded one."""
        return serve(folder, given.get("dsn"))

    def create(self) -> None:
        """A database with our measuring extensions; the store lays its tables."""
        place = create_place(self._server, self.location.name)
        if place.kind == "database":
            with connected(place.dsn) as connection:
                upkeep.add_extensions(connection)

    @property
    def _server(self) -> str:
        server = self.served()
        if server is None:
            raise BackendError("postgres needs a server: run it through `savermark sandbox run`")
        return server

    @property
    def _place(self) -> ServerPlace:
        return find_place(self._server, self.location.name)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[PostgresSandboxStore]:
        place = self._place
        dsn = make_conninfo(place.dsn)
        async with PostgresSandboxStore.open(dsn, pool_size=_POOL) as store:
            yield store

    def storage(self) -> list[StorageRow]:
        """One statement a table."""
        with connected(self._place.dsn) as connection:
            return [
                StorageRow(thread, "", table, None, rows, size, stored)
                for table in KEPT
                for thread, rows, size, stored in connection.execute(_storage_query(table))
            ]

    def footprint(self) -> list[FootprintRow]:
        """Heap, TOAST and index bytes of each table, and what of them is free."""
        place = self._place
        tables: dict[str, Any] = dict(TABLE_NAMES)
        with connected(place.dsn) as connection:
            sizes = connection.execute(queries.SIZES, {"tables": list(TABLE_NAMES)}).fetchall()
            free = upkeep.free_bytes(connection, sizes) if place.kind == "database" else []
        parts = [
            FootprintRow(component, tables[row[0]], size)
            for row in sizes
            for component, size in zip(("heap", "toast", "index"), row[1:4], strict=True)
        ]
        return [*parts, *(FootprintRow("free", tables[name], size) for name, size in free)]

    def settle(self) -> None:
        with connected(self._place.dsn) as connection:
            upkeep.vacuum(connection, "ANALYZE", tuple(TABLE_NAMES))
            upkeep.checkpoint(connection)

    def compact(self) -> None:
        """VACUUM FULL: rewrites the tables and gives the space back to the system."""
        with connected(self._place.dsn) as connection:
            upkeep.vacuum(connection, "FULL, ANALYZE", tuple(TABLE_NAMES))

    def drop_caches(self) -> None:
        """Evict our pages from the server's buffers and, where it is embedded, the system's."""
        place = self._place
        with connected(place.dsn) as connection:
            if place.kind == "database" and upkeep.evicts(connection):
                upkeep.evict(connection, tuple(TABLE_NAMES))
            if is_embedded(self._server):
                upkeep.forget_files(connection, tuple(TABLE_NAMES))

    def describe(self) -> dict[str, Any]:
        place = self._place
        with connected(place.dsn) as connection:
            facts = upkeep.server_facts(connection, tuple(TABLE_NAMES))
        del facts["versions"]
        return {
            "store": "PostgresSandboxStore",
            **facts,
            "psycopg": psycopg.__version__,
            "pool": _POOL,
            "place": place.kind,
            "embedded": is_embedded(self._server),
        }

    def destroy(self) -> None:
        with suppress(BackendError):  # it was never made
            drop_place(self._place)


def _storage_query(table: SandboxTable) -> Any:
    name, thread, columns = KEPT[table]
    size = " + ".join(f"coalesce(octet_length({column}), 0)" for column in columns)
    stored = " + ".join(f"coalesce(pg_column_size({column}), 0)" for column in columns)
    source = f"{name} AS t"
    if thread == "seq":
        source += " JOIN sandbox_checkpoints AS c USING (seq)"
    of = {"seq": "c.thread_id", "": f"'{SHARED}'"}.get(thread, thread)
    sums = f"sum({size})::bigint, sum({stored})::bigint"
    return f"SELECT {of}, count(*), {sums} FROM {source} GROUP BY 1 HAVING count(*) > 0"


PLACE = PostgresPlace
