"""The rows of a Postgres database that LangGraph's savers wrote."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from savermark.backends.shared import one_line
from savermark.errors import BackendError
from savermark.history import postgres_chain
from savermark.history.image import BlobRow, CheckpointRow, ThreadImage, WriteRow
from savermark.history.postgres_txn import PostgresTxn
from savermark.history.rows import BATCH, CHUNK, ThreadBusy
from savermark.history.streaming import pages, stream
from savermark.history.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg_pool import ConnectionPool

    from savermark.history.lineage import Channels, KeepSet
    from savermark.history.postgres_bulk import PostgresBulk
    from savermark.history.turn import Lock

    Cursor = psycopg.Cursor[tuple[Any, ...]]

_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
_BUSY = (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)
_NULL, _TRUE = 0, 1  # what `_COLUMNS` says of an inline value; anything else is 2

# Of the inline values only which they are: a text may be long. Versions as text keep the digits
# of a number as the table of blobs has them.
_COLUMNS = """
checkpoint_ns, checkpoint_id, parent_checkpoint_id, (checkpoint -> 'channel_versions')::text,
(SELECT jsonb_object_agg(key, CASE value WHEN 'null' THEN 0 WHEN 'true' THEN 1 ELSE 2 END)
    FROM jsonb_each(checkpoint -> 'channel_values')),
metadata, coalesce((checkpoint ->> 'v')::int, 1),
octet_length(checkpoint::text) + octet_length(metadata::text)
"""
_CHECKPOINTS = f"SELECT thread_id, {_COLUMNS} FROM checkpoints WHERE thread_id = ANY(%s)"
_BLOBS = """
SELECT thread_id, checkpoint_ns, channel, version, type, coalesce(octet_length(blob), 0)
FROM checkpoint_blobs WHERE thread_id = ANY(%s)
"""
_WRITES = """
SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, {path},
    coalesce(octet_length(blob), 0)
FROM checkpoint_writes WHERE thread_id = ANY(%s)
"""
_HAS_PATHS = """
SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = 'checkpoint_writes'::regclass
    AND attname = 'task_path' AND NOT attisdropped)
"""
_OF_RUNS = """
SELECT DISTINCT thread_id COLLATE "C" AS thread_id FROM checkpoints
WHERE metadata ->> 'run_id' = ANY(%s)
    AND jsonb_typeof(metadata -> 'run_id') IN ('string', 'number')
ORDER BY 1
"""


def lock_key(name: str) -> str:
    """The number under which jobs hold a thread, as SQL; `name` is an expression."""
    return f"hashtextextended('savermark ' || {name}::text, 0)"


class PostgresRows:
    """Row access over a connection or a pool (see `rows.RowAccess`).

    `lock` is held while the connection is used. Nothing is created or altered.
    """

    columns = _COLUMNS

    def __init__(
        self,
        connection: psycopg.Connection[Any] | ConnectionPool[Any],
        lock: Lock | None = None,
    ) -> None:
        self.connection = connection
        self._turn = Turn(lock)
        self._paths: bool | None = None

    @classmethod
    def of(cls, saver: PostgresSaver) -> PostgresRows:
        """The rows behind a saver, over its connection or pool and under its lock."""
        return cls(saver.conn, saver.lock)

    @property
    def bulk(self) -> PostgresBulk | None:
        """Many threads at a time; not in pipeline mode, where no statement tells its count."""
        from savermark.history.postgres_bulk import PostgresBulk

        lent = not isinstance(self.connection, psycopg.Connection)
        if lent or self.connection.pgconn.pipeline_status == PipelineStatus.OFF:  # type: ignore[union-attr]
            return PostgresBulk(self)
        return None

    def threads(self) -> Iterator[str]:
        """Every thread with a row, in the database's order; a page of them at a time."""
        for page in pages(self, CHUNK):
            yield from (thread for thread, _ in page)

    def image(self, thread_id: str | int) -> ThreadImage:
        """All rows of one thread."""
        return self.read([str(thread_id)])[0]

    def images(
        self, threads: Sequence[str | int] | None = None, *, batch: int = BATCH, chunk: int = CHUNK
    ) -> Iterator[ThreadImage]:
        """Four statements a batch, the reading ones on one snapshot."""
        return stream(self, threads, batch, chunk)

    def keep_set(
        self,
        thread_id: str | int,
        checkpoint_ns: str = "",
        checkpoint_id: str | None = None,
        channels: Channels = "auto",
        *,
        chunk: int = CHUNK,
    ) -> KeepSet:
        """One statement where ids ascend along one line, else a recursive one more."""
        with self.cursor() as cursor:
            where = (str(thread_id), checkpoint_ns)
            return postgres_chain.keep_set(cursor, self, where, checkpoint_id, channels, chunk)

    def threads_of_runs(self, run_ids: Collection[str]) -> list[str]:
        """One scan of the metadata."""
        with self.cursor() as cursor:
            return [row[0] for row in cursor.execute(_OF_RUNS, (list(run_ids),))]

    @contextmanager
    def transaction(self, thread_id: str | int) -> Iterator[PostgresTxn]:
        """REPEATABLE READ under an advisory lock on the thread.

        The lock is taken before the transaction begins: waiting for it inside would leave the
        transaction with a snapshot from before the other job's changes.
        """
        name = str(thread_id)
        with self.cursor() as cursor:
            if not cursor.connection.autocommit:
                raise BackendError("maintenance needs an autocommit connection: open one")
            cursor.execute(f"SELECT pg_advisory_lock({lock_key('%s')})", (name,))
            try:
                with repeatable(cursor):
                    yield PostgresTxn(self, cursor, name)
            finally:
                with suppress(psycopg.Error):  # a broken connection has lost its locks
                    cursor.execute(f"SELECT pg_advisory_unlock({lock_key('%s')})", (name,))

    @staticmethod
    def lock_within(cursor: Cursor, thread_id: str) -> None:
        """Take a thread's lock to the end of the open transaction."""
        cursor.execute(f"SELECT pg_advisory_xact_lock({lock_key('%s')})", (thread_id,))

    @contextmanager
    def cursor(self) -> Iterator[Cursor]:
        """A cursor under the lock; what Postgres raises inside comes as `BackendError`."""
        with self._turn.taken():
            try:
                with (
                    self._connected() as connection,
                    connection.cursor(row_factory=tuple_row) as cursor,
                ):
                    yield cursor
            except _BUSY as error:
                raise ThreadBusy(f"{one_line(error)}: another session is at it too") from error
            except psycopg.Error as error:
                raise BackendError(one_line(error)) from error

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        if not isinstance(self.connection, psycopg.Connection):
            with self.connection.connection() as connection:
                yield connection
            return
        if self.connection.info.transaction_status == TransactionStatus.INTRANS:
            raise BackendError("the connection is inside a transaction: commit it first")
        yield self.connection

    def page(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        """The next threads and their rows (`streaming.Reader`)."""
        later = "" if after is None else "WHERE thread_id > %(after)s"
        parts = " UNION ALL ".join(
            f"(SELECT thread_id, count(*) AS n FROM {table} {later} "
            "GROUP BY thread_id ORDER BY thread_id LIMIT %(limit)s)"
            for table in _TABLES
        )
        statement = (
            f"SELECT thread_id, sum(n)::bigint FROM ({parts}) AS parts "
            "GROUP BY thread_id ORDER BY thread_id LIMIT %(limit)s"
        )
        with self.cursor() as cursor:
            return cursor.execute(statement, {"after": after, "limit": limit}).fetchall()

    def sizes(self, threads: Sequence[str]) -> Mapping[str, int]:
        """The rows of these threads (`streaming.Reader`)."""
        parts = " UNION ALL ".join(
            f"SELECT thread_id, count(*) AS n FROM {table} WHERE thread_id = ANY(%(threads)s) "
            "GROUP BY thread_id"
            for table in _TABLES
        )
        statement = f"SELECT thread_id, sum(n)::bigint FROM ({parts}) AS parts GROUP BY thread_id"
        with self.cursor() as cursor:
            return dict(cursor.execute(statement, {"threads": list(threads)}).fetchall())

    def read(self, threads: Sequence[str]) -> list[ThreadImage]:
        """The images of these threads: three statements on one snapshot (`streaming.Reader`)."""
        with self.cursor() as cursor, repeatable(cursor, ", READ ONLY"):
            return self.read_with(cursor, threads)

    def read_with(self, cursor: Cursor, threads: Sequence[str]) -> list[ThreadImage]:
        """`read` inside a transaction of the caller's."""
        names = list(threads)
        path = "task_path" if self.has_paths(cursor) else "''"
        checkpoints, blobs, writes = (
            _by_thread(cursor.execute(statement, (names,)))
            for statement in (_CHECKPOINTS, _BLOBS, _WRITES.format(path=path))
        )
        return [self._image(name, checkpoints[name], blobs[name], writes[name]) for name in names]

    def has_paths(self, cursor: Cursor) -> bool:
        """Whether the writes have a task path: the first savers' tables do not."""
        if self._paths is None:
            self._paths = bool((cursor.execute(_HAS_PATHS).fetchone() or (False,))[0])
        return self._paths

    def _image(
        self,
        name: str,
        checkpoints: list[tuple[Any, ...]],
        blobs: list[tuple[Any, ...]],
        writes: list[tuple[Any, ...]],
    ) -> ThreadImage:
        kept = sorted((BlobRow(*row) for row in blobs), key=lambda row: row.key)
        filled = {row.key for row in kept if row.type != "empty"}
        rows = []
        for row in checkpoints:
            versions = versions_of(row[3])
            backed = {c for c, version in versions.items() if (row[0], c, version) in filled}
            rows.append(self.checkpoint(row, backed, versions))
        rows.sort(key=lambda row: row.key)
        owned = [WriteRow(*row) for row in writes]
        owned.sort(key=lambda row: (row.checkpoint_ns, row.checkpoint_id, *row.order))
        return ThreadImage(name, tuple(rows), tuple(owned), tuple(kept))

    @staticmethod
    def checkpoint(
        row: tuple[Any, ...], backed: Collection[str], versions: Mapping[str, str] | None = None
    ) -> CheckpointRow:
        """The record of `columns`; `backed` are the channels with a blob at their version."""
        space, name, parent, text, inline, metadata, v, size = row
        kinds: dict[str, int] = inline or {}
        backed = frozenset(backed)
        marked = frozenset(c for c, kind in kinds.items() if kind == _TRUE)
        stored = backed | {c for c, kind in kinds.items() if kind != _NULL}
        return CheckpointRow(
            space,
            name,
            parent or None,
            versions_of(text) if versions is None else versions,
            stored,
            metadata if isinstance(metadata, dict) else {},
            v,
            size,
            nulls=frozenset(kinds) - stored,
            snapshots=marked & backed,
            markers=marked,
        )


@contextmanager
def repeatable(cursor: Cursor, mode: str = "") -> Iterator[None]:
    """One snapshot for all statements of a transaction."""
    # Without a mode the session's own holds, so that a read-only one stays read-only.
    with cursor.connection.transaction():
        cursor.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ{mode}")
        yield


def versions_of(text: str | None) -> dict[str, str]:
    """The versions of a checkpoint from their JSON."""
    return json.loads(text, parse_int=str, parse_float=str) if text else {}


def _by_thread(rows: Cursor) -> defaultdict[str, list[tuple[Any, ...]]]:
    found: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row[1:])
    return found
