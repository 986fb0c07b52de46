"""Access to the rows of a store: images of whole threads, and transactions on one thread.

`row_access(saver)` works on any `InMemorySaver`, `SqliteSaver` or `PostgresSaver` (subclasses and
our own wrappers included), whoever made it; `open_rows(store)` on a store of ours; and the classes
in `sqlite` and `postgres` take a bare connection. Values are never built: keys, links, versions
and sizes are all that is read, and no serialized form is opened that could run code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from savermark.errors import BackendError, Unsupported, UsageError
from savermark.history.kinds import is_memory, is_sync_postgres, is_sync_sqlite, unwrapped

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.backends.base import Store
    from savermark.history.lineage import (
        BlobKey,
        Channels,
        CheckpointKey,
        KeepSet,
        ThreadImage,
        WriteKey,
    )
    from savermark.storage import Table

Typed = tuple[str, bytes]  # what a serializer's `dumps_typed` gives: type tag and bytes

BATCH = 64  # threads whose images are read at a time
CHUNK = 10_000  # rows a statement reads or keys it takes, at most


class ThreadBusy(BackendError):
    """Another job or a live run got in the way of a transaction: nothing was changed, try again."""


class ThreadTxn(Protocol):
    """One thread inside one transaction, which is held against other maintenance jobs.

    Leaving the block commits, an exception undoes everything. A live run is not held off: it may
    append meanwhile (not on SQLite), and what it appends is neither seen nor touched. The saver
    whose connection this is waits, so it must not be called inside the block. Every method that
    takes keys ignores those that hold nothing, and counts the rows it changed.
    """

    thread_id: str

    def image(self) -> ThreadImage:
        """The thread as this transaction sees it, own changes included."""
        ...

    def delete_checkpoints(self, keys: Iterable[CheckpointKey], *, chunk: int = CHUNK) -> int:
        """Delete these checkpoint rows and nothing else: neither writes nor blobs."""
        ...

    def delete_writes(self, keys: Iterable[WriteKey], *, chunk: int = CHUNK) -> int:
        """Delete these write rows."""
        ...

    def delete_writes_of(self, keys: Iterable[CheckpointKey], *, chunk: int = CHUNK) -> int:
        """Delete every write row stored on these checkpoints, whether the checkpoint exists."""
        ...

    def delete_blobs(self, keys: Iterable[BlobKey], *, chunk: int = CHUNK) -> int:
        """Delete these blob rows; SQLite has none."""
        ...

    def delete_all(self) -> dict[Table, int]:
        """Delete the whole thread; the rows deleted by table."""
        ...

    def reparent(self, checkpoint_ns: str, child_id: str, parent_id: str | None) -> int:
        """Set the parent of a checkpoint, None for a root."""
        ...

    def move_writes(self, checkpoint_ns: str, from_id: str, to_id: str) -> int:
        """Store the write rows of one checkpoint on another one that owns none of their keys."""
        ...

    def store_value(
        self, checkpoint_ns: str, checkpoint_id: str, channel: str, value: Typed
    ) -> None:
        """Store a channel's value on a checkpoint at the version the checkpoint names for it.

        `value` is what `serde.dumps_typed(_DeltaSnapshot(...))` gives. Blob and marker on
        Postgres, the blob on memory, inside the checkpoint on SQLite. On memory and Postgres every
        other checkpoint of the namespace with that version shows the value too. Raises
        `UsageError` when the checkpoint is not stored or names no version for the channel.
        """
        ...

    def update_metadata(
        self, checkpoint_ns: str, checkpoint_id: str, metadata: Mapping[str, Any]
    ) -> int:
        """Replace a checkpoint's whole metadata."""
        ...

    def copy_rows(
        self, target_thread: str, checkpoints: Collection[CheckpointKey] | None = None
    ) -> int:
        """Copy this thread's rows under another, empty thread; returns the rows written.

        With `checkpoints` only these, their writes and the blobs their versions name; a parent
        that is not copied becomes None. Raises `UsageError` when the target holds rows.
        """
        ...

    def beside(self, thread_id: str | int) -> ThreadTxn:
        """Another thread in this same transaction."""
        ...


class RowAccess(Protocol):
    """The rows of one store. Thread ids are text: an int is taken as its decimal digits.

    An image is one moment of its thread. Errors of the engine come as `BackendError`.
    """

    def threads(self) -> Iterator[str]:
        """Every thread that holds a row in any table, orphans included, in the engine's order."""
        ...

    def image(self, thread_id: str | int) -> ThreadImage:
        """All rows of one thread; an unknown thread has none."""
        ...

    def images(
        self, threads: Sequence[str | int] | None = None, *, batch: int = BATCH, chunk: int = CHUNK
    ) -> Iterator[ThreadImage]:
        """The images of these threads, or of all, a constant number of statements a batch.

        A batch is at most `batch` threads, and no more than about `chunk` rows unless one thread
        alone has more. Nothing is held between batches, so the consumer may write. All threads
        come in the engine's order, named ones in theirs, each once.
        """
        ...

    def keep_set(
        self,
        thread_id: str | int,
        checkpoint_ns: str = "",
        checkpoint_id: str | None = None,
        channels: Channels = "auto",
        *,
        chunk: int = CHUNK,
    ) -> KeepSet:
        """The keep-set of a checkpoint (None: the newest), set-based; equal to `keep_ids`.

        An unknown checkpoint needs nothing. Raises `LineageError`.
        """
        ...

    def threads_of_runs(self, run_ids: Collection[str]) -> list[str]:
        """The threads with a checkpoint whose metadata names one of these runs, in byte order.

        One statement, or one pass; a run id that was stored as a number counts as its digits.
        """
        ...

    def transaction(self, thread_id: str | int) -> AbstractContextManager[ThreadTxn]:
        """One transaction on one thread (see `ThreadTxn`); does not nest."""
        ...


def row_access(saver: BaseCheckpointSaver[Any]) -> RowAccess:
    """The rows behind a sync saver. Raises `Unsupported` for a saver whose tables are unknown.

    The saver's own connection is used, under the saver's lock; a pool lends one. For an async
    saver see `arows.arow_access`.
    """
    saver = unwrapped(saver)
    if is_memory(saver):
        from savermark.history.memory import MemoryRows

        return MemoryRows(saver)
    if is_sync_sqlite(saver):
        from savermark.history.sqlite import SqliteRows

        return SqliteRows.of(saver)
    if is_sync_postgres(saver):
        from savermark.history.postgres import PostgresRows

        return PostgresRows.of(saver)
    raise Unsupported(
        f"the rows of a {type(saver).__name__} are not known to savermark: only those of "
        "InMemorySaver, SqliteSaver and PostgresSaver are"
    )


def no_version(checkpoint_id: str, channel: str) -> UsageError:
    """The refusal of `store_value`."""
    return UsageError(
        f"checkpoint {checkpoint_id} is not stored or names no version of {channel!r}: a value "
        "can only stand at a version"
    )


def target_in_use(thread_id: str) -> UsageError:
    """The refusal of `copy_rows`."""
    return UsageError(f"thread {thread_id!r} holds rows already: copy to an unused id")


@contextmanager
def open_rows(store: Store) -> Iterator[RowAccess]:
    """The rows of a store of ours, over a connection that closes with the block."""
    with store.saver() as saver:
        yield row_access(saver)
