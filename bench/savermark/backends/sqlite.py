"""Backend `sqlite`: a file in WAL mode, opened as the savers' documentation tells."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import asynccontextmanager, closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import aiosqlite
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from savermark.backends import _sqlite_sizes as sizes
from savermark.backends import _sqlite_sql as sql
from savermark.backends.base import Backend, Capability, Location, Store
from savermark.backends.shared import (
    ThreadDigests,
    check_targets,
    floor_rows,
    versions,
    with_zero_rows,
)
from savermark.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.storage import FloorRow, FootprintRow, StorageRow

_COMPANIONS = ("-wal", "-shm", "-journal")
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
_PRAGMAS = (
    "journal_mode",
    "page_size",
    "cache_size",
    "mmap_size",
    "secure_delete",
    "wal_autocheckpoint",
    "auto_vacuum",
    "busy_timeout",
    "locking_mode",
)


def explain(error: sqlite3.Error, path: Path) -> str:
    """One line that names the fix, for what SQLite says about this file."""
    said = str(error)
    fixes = {
        "database or disk is full": f"disk full while writing {path.name}: free space there, or "
        "choose another folder",
        "unable to open": f"cannot open {path}: choose an existing folder that can be written",
        "readonly database": f"{path} is read-only: make file and folder writable, or copy it",
        "locked": f"{path.name} is locked by another process: close that one, or use a copy",
        "not a database": f"{path} is not a SQLite database: name another file",
        "malformed": f"{path} is damaged: restore it from a copy, or remove it",
        "disk I/O error": f"the disk refused {path.name}: check its space, quota and health",
        "no such table": f"{path} holds no checkpoint tables: let savermark create the store",
    }
    for sign, line in fixes.items():
        if sign in said:
            return line
    return f"SQLite failed on {path.name}: {said}"


def store_path(location: Location) -> Path:
    """The file of a store: its name, made safe, with a hash where making it safe changed it."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", location.name)[:100]
    if safe != location.name:
        safe += "-" + sha256(location.name.encode()).hexdigest()[:8]
    return location.folder / f"{safe}.sqlite"


class SqliteStore(Store):
    """One database file, and one connection of our own for measuring it.

    Ours stays open beside the saver's, so that the WAL lives on when a saver closes, as it does
    under an application that keeps its connection.
    """

    capabilities = frozenset(Capability)

    def __init__(self, location: Location) -> None:
        self.location = location
        self.path = store_path(location)
        self._own: sqlite3.Connection | None = None
        self._serializer = "JsonPlusSerializer"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise BackendError(explain(error, self.path)) from error

    @contextmanager
    def saver(self, serde: SerializerProtocol | None = None) -> Iterator[BaseCheckpointSaver[Any]]:
        """A `SqliteSaver` on a connection that its threads share; set up before it is handed out.

        What SQLite raises inside the block leaves it as a `BackendError`.
        """
        with (
            self._explained(),
            closing(sqlite3.connect(self.path, check_same_thread=False)) as connection,
        ):
            saver = SqliteSaver(connection, serde=serde)
            saver.setup()
            self._serializer = type(saver.serde).__name__
            yield saver

    @asynccontextmanager
    async def asaver(
        self, serde: SerializerProtocol | None = None
    ) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        """An `AsyncSqliteSaver`; its connection lives on a thread of its own."""
        with self._explained():
            async with aiosqlite.connect(self.path) as connection:
                saver = AsyncSqliteSaver(connection, serde=serde)
                await saver.setup()
                self._serializer = type(saver.serde).__name__
                yield saver

    @contextmanager
    def _measuring(self) -> Iterator[sqlite3.Connection]:
        """Our own connection, never the saver's; its settings touch nothing but itself."""
        with self._explained():
            if self._own is None:
                self._own = sqlite3.connect(
                    self.path, isolation_level=None, check_same_thread=False
                )
                self._own.executescript("PRAGMA temp_store=MEMORY; PRAGMA cache_size=-65536;")
            yield self._own

    def storage(self, threads: Sequence[str] | None = None) -> list[StorageRow]:
        """Three statements; channel values are part of the checkpoint here, so no blobs."""
        with self._measuring() as connection, sql.selected(connection, threads) as where:
            return with_zero_rows(sizes.storage(connection, where), threads)

    def floor(self, threads: Sequence[str] | None = None) -> list[FloorRow]:
        """The distinct write values of each thread, streamed in thread order."""
        with self._measuring() as connection, sql.selected(connection, threads) as where:
            holders = sql.holders(connection, where)
            return floor_rows(sql.write_values(connection, where), holders, threads)

    def footprint(self) -> list[FootprintRow]:
        """Pages by table and index, the WAL as it lies on disk, and the free list.

        The WAL is first copied into the file, but not cut: how large it grew is part of the answer.
        """
        with self._measuring() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            wal = self.path.with_name(self.path.name + "-wal")
            wal_bytes = wal.stat().st_size if wal.exists() else 0
            return sql.footprint(connection, self.path.stat().st_size, wal_bytes)

    def row_digests(self, threads: Sequence[str] | None = None) -> dict[str, str]:
        """SHA-256 over every row in key order, one streamed statement a table."""
        digests = ThreadDigests()
        with self._measuring() as connection, sql.selected(connection, threads) as where:
            for table in sql.KEYS:
                digests.feed(table, sql.ordered_rows(connection, table, where))
        return digests.result(threads)

    def compact(self) -> None:
        """VACUUM, which shows on disk only after the WAL is copied and cut."""
        with self._measuring() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def settle(self) -> None:
        """Copy the WAL into the file and let SQLite refresh the statistics it asks for."""
        with self._measuring() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            connection.execute("PRAGMA optimize").fetchall()

    def drop_caches(self) -> None:
        """Close our connection and ask the system to forget the file's pages.

        Savers keep caches of their own: close them first.
        """
        self.close()
        if not hasattr(os, "posix_fadvise"):  # macOS, Windows: connection caches are all we drop
            return
        for path in (self.path, self.path.with_name(self.path.name + "-wal")):
            if path.exists():
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)  # only clean pages can be dropped
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)

    def clone_threads(self, sources: Mapping[str, Sequence[str]]) -> int:
        """INSERT .. SELECT from a temporary table that holds the sources in key order.

        One transaction. It runs without fsync and, when no other connection is open, with the
        rollback journal in memory; both are back to normal afterwards. Close savers first.
        """
        pairs = check_targets(sources)
        self.close()
        with (
            self._explained(),
            closing(sqlite3.connect(self.path, isolation_level=None)) as connection,
        ):
            return sql.clone(connection, pairs)

    def describe(self) -> dict[str, Any]:
        """Versions and the pragmas a saver's connection has."""
        with self._explained(), closing(sqlite3.connect(self.path)) as connection:
            pragmas = {name: sizes.pragma(connection, name) for name in _PRAGMAS}
            synchronous = sizes.pragma(connection, "synchronous")
            return {
                "backend": "sqlite",
                "saver": "SqliteSaver / AsyncSqliteSaver",
                "serializer": self._serializer,
                "sqlite": sqlite3.sqlite_version,
                "versions": versions(
                    "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "aiosqlite"
                ),
                **pragmas,
                "synchronous": _SYNCHRONOUS[int(synchronous)],
                "dbstat": sql.has_dbstat(connection),
            }

    def close(self) -> None:
        """Close our connection; the last one out folds the WAL into the file."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def destroy(self) -> None:
        """Remove the database file and what SQLite laid beside it."""
        self.close()
        for suffix in ("", *_COMPANIONS):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


class SqliteBackend(Backend):
    """A SQLite file in WAL mode."""

    name: ClassVar[str] = "sqlite"
    distribution: ClassVar[str] = "langgraph-checkpoint-sqlite"
    title: ClassVar[str] = "SqliteSaver, AsyncSqliteSaver: a file in WAL mode"
    store_type: ClassVar[type[Store]] = SqliteStore

    @classmethod
    def create(cls, location: Location) -> Store:
        """A new file with the saver's tables; never takes over a file that exists."""
        store = SqliteStore(location)
        if store.path.exists():
            raise BackendError(f"{store.path} exists: remove it, or choose another folder")
        with store.saver(), store._measuring():
            return store

    @classmethod
    def attach(cls, location: Location) -> Store:
        """The store in an existing file; nothing in it is changed by attaching."""
        store = SqliteStore(location)
        if not store.path.is_file():
            raise BackendError(f"{store.path} does not exist: run the workload first")
        try:
            with store._measuring() as connection:
                sql.check_tables(connection)
        except BackendError:
            store.close()
            raise
        return store
