"""The rows of a SQLite file that LangGraph's savers wrote, older ones without `task_path` too."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager, nullcontext
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from savermark.backends.shared import one_line
from savermark.errors import BackendError
from savermark.history import sqlite_chain
from savermark.history.image import CheckpointRow, ThreadImage, WriteRow
from savermark.history.rows import BATCH, CHUNK, ThreadBusy
from savermark.history.sqlite_txn import SqliteTxn
from savermark.history.streaming import pages, stream
from savermark.history.turn import Turn
from savermark.history.wire import outline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.sqlite import SqliteSaver

    from savermark.history.lineage import Channels, KeepSet
    from savermark.history.sqlite_bulk import SqliteBulk
    from savermark.history.turn import Lock

_TABLES = ("checkpoints", "writes")
_NAMES = 500  # ids in one statement: the first SQLite builds take 999 parameters
# The length of a blob is read off its header, so its overflow pages stay unread.
_BYTES = (
    "ifnull(CASE typeof(value) WHEN 'blob' THEN length(value) "
    "ELSE length(CAST(value AS BLOB)) END, 0)"
)
_OF_RUNS = """
WITH named AS (
    SELECT thread_id, CAST(metadata AS TEXT) AS told FROM main.checkpoints
), runs AS (
    SELECT thread_id, CASE WHEN json_valid(told)
        AND json_type(told, '$.run_id') IN ('text', 'integer')
        THEN CAST(json_extract(told, '$.run_id') AS TEXT) END AS run FROM named
)
SELECT DISTINCT thread_id FROM runs WHERE run IN (SELECT value FROM json_each(?1))
ORDER BY thread_id
"""


class SqliteRows:
    """Row access over a connection (see `rows.RowAccess`).

    A connection opened read-only, or by a saver that never set the file up, will do: nothing is
    created or altered. `lock` is held while the connection is used. Without `serde` encrypted
    checkpoints are unreadable.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        lock: Lock | None = None,
        serde: SerializerProtocol | None = None,
    ) -> None:
        self.connection = connection
        self.serde = serde
        self._turn = Turn(lock)
        self._paths: bool | None = None

    @classmethod
    def of(cls, saver: SqliteSaver) -> SqliteRows:
        """The rows behind a saver, over its connection and under its lock."""
        with saver.lock:
            saver.setup()
        return cls(saver.conn, saver.lock, saver.serde)

    @property
    def bulk(self) -> SqliteBulk:
        """Many threads at a time."""
        from savermark.history.sqlite_bulk import SqliteBulk

        return SqliteBulk(self)

    def threads(self) -> Iterator[str]:
        """Every thread with a row, in byte order; a page of them at a time."""
        for page in pages(self, CHUNK):
            yield from (thread for thread, _ in page)

    def image(self, thread_id: str | int) -> ThreadImage:
        """All rows of one thread."""
        return self.read([str(thread_id)])[0]

    def images(
        self, threads: Sequence[str | int] | None = None, *, batch: int = BATCH, chunk: int = CHUNK
    ) -> Iterator[ThreadImage]:
        """Three statements a batch."""
        return stream(self, threads, min(batch, _NAMES), chunk)

    def keep_set(
        self,
        thread_id: str | int,
        checkpoint_ns: str = "",
        checkpoint_id: str | None = None,
        channels: Channels = "auto",
        *,
        chunk: int = CHUNK,
    ) -> KeepSet:
        """A scan along the primary key, or a recursive query (`sqlite_chain`)."""
        with self.reading() as cursor:
            where = (str(thread_id), checkpoint_ns)
            return sqlite_chain.keep_set(
                cursor, self.checkpoint, where, checkpoint_id, channels, chunk
            )

    def threads_of_runs(self, run_ids: Collection[str]) -> list[str]:
        """One scan of the metadata; damaged metadata names no run."""
        with self.cursor() as cursor:
            return [row[0] for row in cursor.execute(_OF_RUNS, (json.dumps(list(run_ids)),))]

    @contextmanager
    def transaction(self, thread_id: str | int) -> Iterator[SqliteTxn]:
        """BEGIN IMMEDIATE: no one else writes to the file meanwhile."""
        with self.cursor() as cursor:
            if cursor.connection.in_transaction:
                raise BackendError("the connection is inside a transaction: commit it first")
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteTxn(self, cursor, str(thread_id))
                cursor.execute("COMMIT")
            except BaseException:
                if cursor.connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise

    @contextmanager
    def cursor(self) -> Iterator[sqlite3.Cursor]:
        """A cursor under the lock; what SQLite raises inside comes as `BackendError`."""
        with self._turn.taken():
            cursor = self.connection.cursor()
            cursor.row_factory = None  # the application may have set another one
            try:
                yield cursor
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise BackendError(one_line(error)) from error
                raise ThreadBusy(f"{one_line(error)}: another process writes, try again") from error
            except sqlite3.Error as error:
                raise BackendError(one_line(error)) from error
            finally:
                cursor.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Cursor]:
        """One snapshot for several statements; inside an open transaction that one's."""
        with self.cursor() as cursor:
            inside = cursor.connection.in_transaction
            with nullcontext() if inside else _snapshot(cursor):
                yield cursor

    def page(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        """The next threads and their rows (`streaming.Reader`)."""
        parts = " UNION ALL ".join(
            f"SELECT * FROM (SELECT thread_id, count(*) AS n FROM main.{table} "
            f"WHERE thread_id > ?1 OR ?1 IS NULL GROUP BY thread_id ORDER BY thread_id LIMIT ?2)"
            for table in _TABLES
        )
        if after is not None:  # a plain range lets the key be searched, not scanned
            parts = parts.replace(" OR ?1 IS NULL", "")
        with self.cursor() as cursor:
            return cursor.execute(
                f"SELECT thread_id, sum(n) FROM ({parts}) GROUP BY thread_id "
                "ORDER BY thread_id LIMIT ?2",
                (after, limit),
            ).fetchall()

    def sizes(self, threads: Sequence[str]) -> Mapping[str, int]:
        """The rows of these threads (`streaming.Reader`)."""
        marks = ", ".join("?" * len(threads))
        parts = " UNION ALL ".join(
            f"SELECT thread_id, count(*) AS n FROM main.{table} WHERE thread_id IN ({marks}) "
            "GROUP BY thread_id"
            for table in _TABLES
        )
        with self.cursor() as cursor:
            return dict(
                cursor.execute(
                    f"SELECT thread_id, sum(n) FROM ({parts}) GROUP BY thread_id", (*threads,) * 2
                )
            )

    def read(self, threads: Sequence[str]) -> list[ThreadImage]:
        """The images of these threads: two statements (`streaming.Reader`)."""
        with self.reading() as cursor:
            return self.read_with(cursor, threads)

    def read_with(self, cursor: sqlite3.Cursor, threads: Sequence[str]) -> list[ThreadImage]:
        """`read` inside a transaction of the caller's."""
        path = "task_path" if self.has_paths(cursor) else "''"
        among = f"WHERE thread_id IN ({', '.join('?' * len(threads))}) ORDER BY thread_id"
        checkpoints = cursor.execute(
            f"SELECT thread_id, {sqlite_chain.COLUMNS} FROM main.checkpoints {among}, "
            "checkpoint_ns, checkpoint_id",
            threads,
        )
        rows = {
            thread: tuple(self.checkpoint(row[1:]) for row in group)
            for thread, group in groupby(checkpoints, itemgetter(0))
        }
        writes = cursor.execute(
            "SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, "
            f"{path} AS path, {_BYTES} FROM main.writes {among}, "
            "checkpoint_ns, checkpoint_id, path, task_id, idx",
            threads,
        )
        owned = {
            thread: tuple(WriteRow(*row[1:]) for row in group)
            for thread, group in groupby(writes, itemgetter(0))
        }
        return [ThreadImage(name, rows.get(name, ()), owned.get(name, ())) for name in threads]

    def has_paths(self, cursor: sqlite3.Cursor) -> bool:
        """Whether the writes have a task path: the first savers' files do not."""
        if self._paths is None:
            self._paths = any(
                column[1] == "task_path"
                for column in cursor.execute("PRAGMA main.table_info(writes)").fetchall()
            )
        return self._paths

    def checkpoint(self, row: tuple[Any, ...]) -> CheckpointRow:
        """The record of `sqlite_chain.COLUMNS`."""
        space, name, parent, tag, data, metadata = row
        size = _length(data) + _length(metadata)
        known = outline(tag, data, self.serde)
        if known is None:
            return CheckpointRow(
                space, name, parent or None, {}, v=0, bytes=size, unreadable=tag or "nothing"
            )
        return CheckpointRow(
            space,
            name,
            parent or None,
            known.versions,
            known.valued,
            _metadata(metadata),
            known.v,
            size,
            snapshots=known.snapshots,
        )


@contextmanager
def _snapshot(cursor: sqlite3.Cursor) -> Iterator[None]:
    cursor.execute("BEGIN")
    try:
        yield
    finally:
        cursor.execute("ROLLBACK")


def _length(value: Any) -> int:
    return len(value.encode()) if isinstance(value, str) else len(value or b"")


def _metadata(data: Any) -> Mapping[str, Any]:
    try:
        fields = json.loads(data) if data else {}
    except ValueError:  # damaged: says nothing
        return {}
    return fields if isinstance(fields, dict) else {}
