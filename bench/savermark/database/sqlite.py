"""A SQLite file of LangGraph's savers, opened as it is: nothing is created or altered."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from savermark.backends import _sqlite_sql as sql
from savermark.backends.sqlite import explain
from savermark.database import sqlite_upkeep as upkeep
from savermark.database.base import Facts
from savermark.database.sqlite_passes import SqliteReading
from savermark.errors import BackendError, Unsupported, UsageError
from savermark.history.sqlite import SqliteRows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.database.base import Compaction, Threads
    from savermark.history.rows import RowAccess
    from savermark.storage import FootprintRow, Table

_NEEDED = {
    "checkpoints": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_checkpoint_id",
        "type",
        "checkpoint",
        "metadata",
    },
    "writes": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "task_id",
        "idx",
        "channel",
        "type",
        "value",
    },
}


class SqliteDatabase:
    """One file and one connection (see `base.Database`)."""

    def __init__(
        self, path: Path, *, write: bool = False, serde: SerializerProtocol | None = None
    ) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection = _open(path, write)
        try:
            columns = self._check()
        except BaseException:
            self._connection.close()
            raise
        self._facts = Facts(
            address=str(path),
            engine=f"SQLite {sqlite3.sqlite_version}",
            saver="SqliteSaver",
            task_path="task_path" in columns["writes"],
            writable=write,
        )
        self._rows = SqliteRows(self._connection, self._lock, serde)

    @property
    def facts(self) -> Facts:
        """What was opened."""
        return self._facts

    @property
    def rows(self) -> RowAccess:
        """The rows of threads, over this connection."""
        return self._rows

    def saver(self, serde: SerializerProtocol | None = None) -> BaseCheckpointSaver[Any]:
        """A `SqliteSaver` on this connection, sharing the lock of `rows`."""
        from langgraph.checkpoint.sqlite import SqliteSaver

        if not self._facts.writable:
            raise Unsupported(f"{self.path} is open for reading only: open it with write=True")
        saver = SqliteSaver(self._connection, serde=serde)
        saver.lock = self._lock
        # Its own set-up would change the journal's mode; only a file without `task_path` needs it.
        saver.is_setup = self._facts.task_path
        return saver

    @contextmanager
    def reader(self, serde: SerializerProtocol | None = None) -> Iterator[BaseCheckpointSaver[Any]]:
        """A `SqliteSaver` on a read-only connection of its own."""
        with closing(_open(self.path, write=False)) as connection:
            yield upkeep.reading_saver(connection, serde, self._facts.task_path)

    def check_writable(self) -> None:
        """Try a deletion of nothing, and undo it."""
        with self._told():
            upkeep.check_writable(self._connection)

    def held(self, checkpoint_ids: Collection[str], threads: Threads = None) -> set[str]:
        """Which of these checkpoint ids are stored."""
        with self._told():
            return upkeep.held(self._connection, checkpoint_ids, threads)

    def compaction(self, *, full: bool = False) -> Compaction:
        """VACUUM, which always rewrites the whole file."""
        with self._told():
            return upkeep.compaction(self._connection, self.path)

    def compact(self, *, full: bool = False) -> list[str]:
        """VACUUM, and a checkpoint of the WAL."""
        with self._told():
            return upkeep.compact(self._connection, self.path)

    @contextmanager
    def reading(self) -> Iterator[SqliteReading]:
        """One read transaction."""
        with self._told():
            self._connection.execute("BEGIN")
            try:
                yield SqliteReading(self._connection)
            finally:
                self._connection.execute("ROLLBACK")

    def footprint(self) -> list[FootprintRow]:
        """Pages by table and index, the WAL as it lies on disk, and the free list."""
        with self._told():
            wal = self.path.with_name(self.path.name + "-wal")
            wal_bytes = wal.stat().st_size if wal.exists() else 0
            return sql.footprint(self._connection, self.path.stat().st_size, wal_bytes)

    def dead_rows(self) -> dict[Table, tuple[int, int]]:
        """None: a deleted row leaves free space in its page, and whole free pages are listed."""
        return {}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise BackendError(explain(error, self.path)) from error

    def _check(self) -> dict[str, set[str]]:
        """The columns of the saver's tables. Raises one line for what is no such file."""
        with self._told():
            columns = {
                table: {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}
                for table in _NEEDED
            }
        if "thread_ts" in columns["checkpoints"]:
            raise Unsupported(
                f"{self.path} was written by a langgraph older than 0.2 (its checkpoints have "
                "thread_ts instead of ids): copy what you need with that version"
            )
        lacking = [table for table, found in columns.items() if not found]
        if lacking:
            raise BackendError(
                f"{self.path} has no table {' and no table '.join(lacking)}: "
                "it is not a database that SqliteSaver wrote, or nothing was ever saved there"
            )
        for table, needed in _NEEDED.items():
            if missing := sorted(needed - columns[table]):
                raise Unsupported(
                    f"{self.path}: the table {table} has no column {', '.join(missing)}; "
                    "this layout is not known to savermark"
                )
        with self._told():
            for table in _NEEDED:  # in the index such ids stand behind all text
                odd = f"SELECT 1 FROM {table} WHERE thread_id >= x'' LIMIT 1"
                if self._connection.execute(odd).fetchone():
                    raise Unsupported(
                        f"{self.path}: the table {table} has thread ids that are not text, "
                        "which no saver reads: give those rows text ids first"
                    )
        return columns


def _open(path: Path, write: bool) -> sqlite3.Connection:
    """A connection to a file that exists; without `write` the file refuses every change."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name the database file in it")
    if not path.is_file():
        raise UsageError(f"{path} does not exist: name an existing database file")
    wal = path.with_name(path.name + "-wal")
    try:
        return _connected(path, "rw" if write else "ro", write)
    except sqlite3.Error as error:
        refused = any(sign in str(error) for sign in ("unable to open", "readonly"))
        if write or not refused:
            raise BackendError(explain(error, path)) from error
    # A file in WAL mode needs its index beside it, which read-only media refuse to hold.
    if wal.exists() and wal.stat().st_size:
        raise BackendError(
            f"{path.name} has changes in {wal.name} that cannot be read on a read-only folder: "
            "copy the file and what lies beside it to a folder that can be written"
        )
    try:
        return _connected(path, "ro&immutable=1", write)
    except sqlite3.Error as error:
        raise BackendError(explain(error, path)) from error


def _connected(path: Path, mode: str, write: bool) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA schema_version").fetchall()  # the first read is what can fail
        if not write:
            connection.execute("PRAGMA query_only = 1").fetchall()
            for setting in ("cache_size = -65536", "mmap_size = 2147418112", "temp_store = 2"):
                with suppress(sqlite3.Error):  # only faster
                    connection.execute(f"PRAGMA {setting}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection
