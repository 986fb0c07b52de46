"""What a store must do, what it may do, and how to ask which of it a given store does.

An optional method is detected by its presence, so a store that cannot do it must not have it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from savermark.errors import Unsupported
from savermark.sandbox.errors import SandboxCheckpointAtomicForkRequiredError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from savermark.sandbox.records import (
        BlobReference,
        DeletedCheckpoints,
        ForkRequest,
        SandboxCheckpoint,
        SandboxInstance,
        ThreadRecordKind,
        WriterIdentity,
    )


class WriterLease(Protocol):
    """The right to write one thread until `expires_at` (ms); it serves as its own `writer`."""

    @property
    def thread_id(self) -> str: ...
    @property
    def owner_token(self) -> str: ...
    @property
    def fence(self) -> int: ...
    @property
    def expires_at(self) -> float: ...
    @property
    def renew_after_ms(self) -> float: ...

    async def renew(self) -> None:
        """Moves `expires_at` to now plus the duration. Raises WRITER_LOST."""

    async def release(self) -> None:
        """Ends the lease unless a newer one replaced it. Never raises."""


@runtime_checkable
class SandboxCheckpointStore(Protocol):
    """The methods that every checkpoint store has. Each write is all or nothing."""

    async def get(self, checkpoint_id: str) -> SandboxCheckpoint | None:
        """A copy of the checkpoint, or None."""

    async def list(self, thread_id: str) -> list[SandboxCheckpoint]:
        """All checkpoints of the thread by `created_at`, then UTF-8 bytes of the id."""

    async def get_head(self, thread_id: str) -> str | None:
        """The id of the head, or None for a thread without one."""

    async def append(
        self,
        checkpoint: SandboxCheckpoint,
        *,
        expected_head_id: str | None,
        writer: WriterIdentity,
    ) -> str:
        """Adds the checkpoint as the new head and returns its id.

        Raises, in this order: INVALID_ID, INVALID_ENTRY, WRITER_LOST, DUPLICATE_ID, STALE_HEAD,
        PARENT_MISMATCH.
        """

    async def delete_head(
        self, thread_id: str, checkpoint_id: str, *, writer: WriterIdentity
    ) -> None:
        """Removes the head; its parent becomes the head. Raises NOT_HEAD for another one."""

    async def acquire_writer(self, thread_id: str) -> WriterLease:
        """Takes the lease of the thread at once, or raises WRITER_CONFLICT."""

    def list_blob_references(self) -> AsyncIterator[BlobReference]:
        """Each blob key in use over all threads, by UTF-8 bytes, with its count."""


@runtime_checkable
class DeletesCheckpoints(Protocol):
    """The optional method that removes old checkpoints of a thread."""

    async def delete_checkpoints(
        self, thread_id: str, *, keep: int, writer: WriterIdentity
    ) -> DeletedCheckpoints:
        """Keeps the newest `keep` of the head chain, and all that is off that chain."""


@runtime_checkable
class ForksCheckpoints(Protocol):
    """The optional method that copies a checkpoint into a new, empty thread."""

    async def fork_from_checkpoint(self, request: ForkRequest) -> SandboxCheckpoint:
        """The new root, with the checkpoint's conversation as the thread's transcript."""


@runtime_checkable
class KeepsThreadRecords(Protocol):
    """The thread data that a fork looks at and sets, kept in the store's own transactions."""

    async def get_transcript(self, thread_id: str) -> list[Any] | None:
        """The messages of the thread, or None when none were ever saved."""

    async def save_transcript(self, thread_id: str, messages: Sequence[Any]) -> None:
        """Replaces the messages of the thread; an empty list is a transcript too."""

    async def save_thread_record(
        self, thread_id: str, kind: ThreadRecordKind, record_id: str
    ) -> None:
        """Remembers that the thread has a run, generation, interrupt or artifact."""


@runtime_checkable
class SandboxInstanceStore(Protocol):
    """The provider's sandbox of each key. The last write wins."""

    async def get(self, key: str) -> SandboxInstance | None:
        """The record as it was stored, or None."""

    async def upsert(self, record: SandboxInstance) -> None:
        """Replaces the whole record of `record.key`: what it leaves out is gone."""

    async def delete(self, key: str) -> None:
        """Removes the record; a missing one is no error."""


class StoreCapability(StrEnum):
    """An optional part of a checkpoint store."""

    DELETE_CHECKPOINTS = "delete_checkpoints"
    FORK = "fork_from_checkpoint"
    THREAD_RECORDS = "thread_records"


_PARTS = {
    StoreCapability.DELETE_CHECKPOINTS: DeletesCheckpoints,
    StoreCapability.FORK: ForksCheckpoints,
    StoreCapability.THREAD_RECORDS: KeepsThreadRecords,
}


def store_capabilities(store: object) -> frozenset[StoreCapability]:
    """The optional parts that the store has."""
    return frozenset(part for part, protocol in _PARTS.items() if isinstance(store, protocol))


async def fork_checkpoint(store: object, request: ForkRequest) -> SandboxCheckpoint:
    """Forks through the store. Raises ATOMIC_FORK_REQUIRED when it cannot."""
    if not isinstance(store, ForksCheckpoints):
        raise SandboxCheckpointAtomicForkRequiredError(
            f"{type(store).__name__} has no fork_from_checkpoint, so it cannot fork"
        )
    return await store.fork_from_checkpoint(request)


async def keep_newest(store: SandboxCheckpointStore, thread_id: str, keep: int) -> tuple[str, ...]:
    """Takes the lease, removes all but the newest `keep` of the head chain, gives it back.

    Returns the removed ids, oldest first. Raises `Unsupported` when the store cannot.
    """
    if not isinstance(store, DeletesCheckpoints):
        raise Unsupported(f"{type(store).__name__} cannot delete checkpoints")
    writer = await store.acquire_writer(thread_id)
    try:
        return (await store.delete_checkpoints(thread_id, keep=keep, writer=writer)).deleted
    finally:
        await writer.release()
