"""One set of steps for every store: read facts, decide by `rules`, write, all in one transaction.

A database supplies a `Ledger`, which reads and writes rows and decides nothing. So the order of
checks is the same on every database, because it is the same code.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from savermark.sandbox import rules
from savermark.sandbox.codec import from_json
from savermark.sandbox.lease import (
    LeaseTimes,
    check_current,
    check_writer_thread,
    released,
    renewed,
    taken,
)
from savermark.sandbox.ledger import IdTakenError, Ledger
from savermark.sandbox.records import DeletedCheckpoints, ThreadRecordKind, Writer
from savermark.sandbox.validation import check_id, check_keep

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from typing import TypeVar

    from savermark.sandbox.lease import ThreadState
    from savermark.sandbox.records import (
        BlobReference,
        ForkRequest,
        SandboxCheckpoint,
        WriterIdentity,
    )
    from savermark.sandbox.rules import Snapshot

    T = TypeVar("T")


class Lease:
    """A writer lease of a `LedgerStore`."""

    def __init__(self, store: LedgerStore, writer: Writer, expires_at: float) -> None:
        self._store = store
        self._writer = writer
        self._expires_at = expires_at

    @property
    def thread_id(self) -> str:
        """The thread that it is for."""
        return self._writer.thread_id

    @property
    def owner_token(self) -> str:
        """The secret that tells this lease from any other."""
        return self._writer.owner_token

    @property
    def fence(self) -> int:
        """A number above that of every earlier lease of the thread."""
        return self._writer.fence

    @property
    def expires_at(self) -> float:
        """When it ends unless renewed, in ms of the store's clock."""
        return self._expires_at

    @property
    def renew_after_ms(self) -> float:
        """How long after it was taken or renewed it should be renewed."""
        return self._store.lease_times.renew_after_ms

    async def renew(self) -> None:
        """Moves `expires_at` to now plus the duration. Raises WRITER_LOST."""
        self._expires_at = await self._store._renew(self._writer)

    async def release(self) -> None:
        """Ends the lease unless a newer one replaced it. Never raises."""
        with suppress(Exception):
            await self._store._release(self._writer)


class LedgerStore(ABC):
    """A checkpoint store with every optional part, over a database's `Ledger`.

    `symlinks=False` refuses symlink entries, as older stores do.
    """

    def __init__(self, lease: LeaseTimes | None = None, *, symlinks: bool = True) -> None:
        self.lease_times = lease or LeaseTimes()
        self._symlinks = symlinks

    @abstractmethod
    async def _write(self, work: Callable[[Ledger], Awaitable[T]]) -> T:
        """Runs the work in one transaction; it may run again after a rollback."""

    @abstractmethod
    async def _get(self, checkpoint_id: str) -> Snapshot | None: ...
    @abstractmethod
    async def _list(self, thread_id: str) -> builtins.list[Snapshot]: ...
    @abstractmethod
    async def _head(self, thread_id: str) -> str | None: ...
    @abstractmethod
    async def _transcript(self, thread_id: str) -> str | None: ...

    @abstractmethod
    def list_blob_references(self) -> AsyncIterator[BlobReference]:
        """Each blob key in use over all threads, by UTF-8 bytes, with its count."""

    async def get(self, checkpoint_id: str) -> SandboxCheckpoint | None:
        """A copy of the checkpoint, or None."""
        check_id(checkpoint_id, "checkpoint id")
        snapshot = await self._get(checkpoint_id)
        return snapshot.thaw() if snapshot else None

    async def list(self, thread_id: str) -> builtins.list[SandboxCheckpoint]:
        """All checkpoints of the thread by `created_at`, then UTF-8 bytes of the id."""
        check_id(thread_id, "thread id")
        return [snapshot.thaw() for snapshot in await self._list(thread_id)]

    async def get_head(self, thread_id: str) -> str | None:
        """The id of the head, or None for a thread without one."""
        check_id(thread_id, "thread id")
        return await self._head(thread_id)

    async def append(
        self,
        checkpoint: SandboxCheckpoint,
        *,
        expected_head_id: str | None,
        writer: WriterIdentity,
    ) -> str:
        """Adds the checkpoint as the new head and returns its id; the errors are in `protocols`."""
        rules.check_append_ids(checkpoint, expected_head_id, writer)
        snapshot = rules.freeze(checkpoint, symlinks=self._symlinks)
        check_writer_thread(writer, snapshot.thread_id)

        async def work(ledger: Ledger) -> str:
            facts = await ledger.facts(snapshot.thread_id, snapshot.id)
            rules.check_append(snapshot, expected_head_id, writer, facts)
            await ledger.insert(snapshot)
            return snapshot.id

        try:
            return await self._write(work)
        except IdTakenError:
            raise rules.duplicate_id(snapshot.id) from None

    async def delete_head(
        self, thread_id: str, checkpoint_id: str, *, writer: WriterIdentity
    ) -> None:
        """Removes the head; its parent, if stored, becomes the head. Raises NOT_HEAD."""
        check_id(thread_id, "thread id")
        check_id(checkpoint_id, "checkpoint id")
        rules.check_writer_id(writer)
        check_writer_thread(writer, thread_id)

        async def work(ledger: Ledger) -> None:
            facts = await ledger.facts(thread_id)
            check_current(facts.state, writer, facts.now)
            rules.check_is_head(facts.state, checkpoint_id)
            parent = await ledger.stored_parent(checkpoint_id)
            await ledger.remove(thread_id, [checkpoint_id], parent)

        await self._write(work)

    async def delete_checkpoints(
        self, thread_id: str, *, keep: int, writer: WriterIdentity
    ) -> DeletedCheckpoints:
        """Keeps the newest `keep` of the head chain, and all that is off that chain."""
        check_id(thread_id, "thread id")
        rules.check_writer_id(writer)
        check_keep(keep)
        check_writer_thread(writer, thread_id)

        async def work(ledger: Ledger) -> DeletedCheckpoints:
            facts = await ledger.facts(thread_id)
            check_current(facts.state, writer, facts.now)
            parents = await ledger.parents(thread_id)
            gone = rules.plan_keep_newest(facts.state.head_id, parents, keep)
            if gone:
                await ledger.remove(thread_id, gone, facts.state.head_id)
            return DeletedCheckpoints(gone)

        return await self._write(work)

    async def fork_from_checkpoint(self, request: ForkRequest) -> SandboxCheckpoint:
        """The new root, with the checkpoint's conversation as the thread's transcript."""
        created_at = rules.check_fork_request(request)
        target = request.destination_thread_id

        async def work(ledger: Ledger) -> Snapshot:
            facts = await ledger.facts(target, request.destination_checkpoint_id)
            found = await ledger.snapshot(request.source_checkpoint_id)
            source = rules.check_fork_source(found, request)
            rules.check_fork_destination(request, facts, await ledger.occupied(target))
            root = rules.fork_root(source, request, created_at)
            await ledger.insert(root)
            await ledger.save_record(target, ThreadRecordKind.TRANSCRIPT, "", root.conversation)
            return root

        try:
            return (await self._write(work)).thaw()
        except IdTakenError:
            raise rules.destination_not_empty(request) from None

    async def acquire_writer(self, thread_id: str) -> Lease:
        """Takes the lease of the thread at once, or raises WRITER_CONFLICT."""
        check_id(thread_id, "thread id")
        token = secrets.token_hex(16)

        async def work(ledger: Ledger) -> ThreadState:
            facts = await ledger.facts(thread_id, create=True)
            state = taken(facts.state, token, facts.now, self.lease_times)
            await ledger.save_lease(thread_id, state)
            return state

        state = await self._write(work)
        return Lease(self, Writer(thread_id, token, state.fence), state.expires_at)

    async def _renew(self, writer: Writer) -> float:
        async def work(ledger: Ledger) -> float:
            facts = await ledger.facts(writer.thread_id)
            state = renewed(facts.state, writer, facts.now, self.lease_times)
            await ledger.save_lease(writer.thread_id, state)
            return state.expires_at

        return await self._write(work)

    async def _release(self, writer: Writer) -> None:
        async def work(ledger: Ledger) -> None:
            facts = await ledger.facts(writer.thread_id)
            state = released(facts.state, writer)
            if state is not None:
                await ledger.save_lease(writer.thread_id, state)

        await self._write(work)

    async def get_transcript(self, thread_id: str) -> builtins.list[Any] | None:
        """The messages of the thread, or None when none were ever saved."""
        check_id(thread_id, "thread id")
        text = await self._transcript(thread_id)
        messages: list[Any] | None = None if text is None else from_json(text)
        return messages

    async def save_transcript(self, thread_id: str, messages: Sequence[Any]) -> None:
        """Replaces the messages of the thread; an empty list is a transcript too."""
        check_id(thread_id, "thread id")
        await self._save_record(
            thread_id, ThreadRecordKind.TRANSCRIPT, "", rules.freeze_conversation(messages)
        )

    async def save_thread_record(
        self, thread_id: str, kind: ThreadRecordKind, record_id: str
    ) -> None:
        """Remembers that the thread has a run, generation, interrupt or artifact."""
        check_id(thread_id, "thread id")
        check_id(record_id, "record id")
        await self._save_record(thread_id, ThreadRecordKind(kind), record_id, "null")

    async def _save_record(self, thread_id: str, kind: str, record_id: str, value: str) -> None:
        async def work(ledger: Ledger) -> None:
            await ledger.facts(thread_id, create=True)
            await ledger.save_record(thread_id, kind, record_id, value)

        await self._write(work)
