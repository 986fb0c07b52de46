"""The checkpoint store in a SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from savermark.backends import _sqlite_sql as sql
from savermark.backends._sqlite_sizes import pragma
from savermark.errors import BackendError
from savermark.sandbox.sqlite import SqliteSandboxStore
from savermark.sandbox_trial.places.base import KEPT, TABLE_NAMES, StorePlace
from savermark.sandbox_trial.places.files import forget
from savermark.storage import SHARED, FootprintRow, StorageRow

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from savermark.backends.base import Location
    from savermark.storage import SandboxTable

_SYNCHRONOUS = "FULL"  # the store's default: what it acknowledges survives a power cut


class SqlitePlace(StorePlace):
    """One file in the trial's folder."""

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self.path = location.folder / "sandbox.sqlite"

    def create(self) -> None:
        """Nothing: the store makes its file."""
        if self.path.exists():
            raise BackendError(f"{self.path} exists: remove it, or choose another folder")

    def open(self) -> AbstractAsyncContextManager[SqliteSandboxStore]:
        return SqliteSandboxStore.open(self.path, synchronous=_SYNCHRONOUS)

    def _connect(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(self.path, isolation_level=None, timeout=60))

    def storage(self) -> list[StorageRow]:
        """One statement a table."""
        with self._connect() as connection:
            return [
                StorageRow(thread, "", table, None, rows, size, size)
                for table in KEPT
                for thread, rows, size in connection.execute(_storage_query(table))
                if rows
            ]

    def footprint(self) -> list[FootprintRow]:
        """Pages by table and index, the free list and the WAL."""
        with self._connect() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            wal = self.path.with_name(f"{self.path.name}-wal")
            wal_bytes = wal.stat().st_size if wal.exists() else 0
            names: dict[str, Any] = dict(TABLE_NAMES)
            found = sql.footprint(connection, self.path.stat().st_size, wal_bytes, names)
        return [row for row in found if row.component != "total"]

    def settle(self) -> None:
        with self._connect() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            connection.execute("PRAGMA optimize").fetchall()

    def compact(self) -> None:
        """VACUUM, which shows on disk only after the WAL is copied and cut."""
        with self._connect() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def drop_caches(self) -> None:
        for path in self._files():
            forget(path)

    def describe(self) -> dict[str, Any]:
        with self._connect() as connection:
            return {
                "store": "SqliteSandboxStore",
                "sqlite": sqlite3.sqlite_version,
                "journal_mode": pragma(connection, "journal_mode"),
                "page_size": pragma(connection, "page_size"),
                "synchronous": _SYNCHRONOUS.lower(),
            }

    def destroy(self) -> None:
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Any]:
        return [
            path
            for suffix in ("", "-wal", "-shm")
            if (path := self.path.with_name(self.path.name + suffix)).exists()
        ]


def _storage_query(table: SandboxTable) -> str:
    name, thread, columns = KEPT[table]
    size = " + ".join(f"ifnull(length(CAST({column} AS BLOB)), 0)" for column in columns)
    if thread == "seq":
        of = "(SELECT thread_id FROM sandbox_checkpoints AS c WHERE c.seq = t.seq)"
    else:
        of = thread or f"'{SHARED}'"
    return f"SELECT {of}, count(*), sum({size}) FROM {name} AS t GROUP BY 1"


PLACE = SqlitePlace
