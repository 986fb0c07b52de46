"""What a database supplies to `engine`: the rows of a store inside one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from savermark.sandbox.lease import ThreadState
    from savermark.sandbox.rules import Snapshot, ThreadFacts


class IdTakenError(Exception):
    """Another transaction committed the checkpoint id after this one looked."""


class Ledger(ABC):
    """The rows of a store inside one transaction."""

    @abstractmethod
    async def facts(
        self, thread_id: str, checkpoint_id: str | None = None, *, create: bool = False
    ) -> ThreadFacts:
        """Locks the thread, then reads it, the time, and whether the id was ever used.

        `create` adds the thread's row first, so that the lock also holds for a new thread.
        """

    @abstractmethod
    async def save_lease(self, thread_id: str, state: ThreadState) -> None:
        """Stores fence, token and expiry of a thread whose row exists."""

    @abstractmethod
    async def snapshot(self, checkpoint_id: str) -> Snapshot | None:
        """A checkpoint, which then cannot be deleted until the transaction ends."""

    @abstractmethod
    async def stored_parent(self, checkpoint_id: str) -> str | None:
        """The parent id of a checkpoint when that parent is stored, else None."""

    @abstractmethod
    async def parents(self, thread_id: str) -> Mapping[str, str | None]:
        """The parent id of each stored checkpoint of the thread."""

    @abstractmethod
    async def insert(self, snapshot: Snapshot) -> None:
        """Stores it, makes it the head, and counts its blobs. Raises `IdTakenError`."""

    @abstractmethod
    async def remove(self, thread_id: str, ids: Sequence[str], head_id: str | None) -> None:
        """Removes checkpoints of the thread, uncounts their blobs, and sets the head."""

    @abstractmethod
    async def occupied(self, thread_id: str) -> bool:
        """Whether the thread has any checkpoint or thread record."""

    @abstractmethod
    async def save_record(self, thread_id: str, kind: str, record_id: str, value: str) -> None:
        """Stores or replaces a thread record."""
