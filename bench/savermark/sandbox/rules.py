"""The decisions of every write, on values read inside its transaction. No store is touched here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from savermark.sandbox.codec import from_json, to_json
from savermark.sandbox.errors import (
    SandboxCheckpointConflictError,
    SandboxCheckpointDuplicateIdError,
    SandboxCheckpointForkDestinationNotEmptyError,
    SandboxCheckpointForkSourceNotFoundError,
    SandboxCheckpointForkSourceThreadMismatchError,
    SandboxCheckpointInvalidEntryError,
    SandboxCheckpointNotHeadError,
    SandboxCheckpointParentMismatchError,
)
from savermark.sandbox.lease import ThreadState, check_current, check_writer_thread
from savermark.sandbox.records import CheckpointReason, FileEntry, SandboxCheckpoint
from savermark.sandbox.validation import (
    check_artifacts,
    check_files,
    check_id,
    check_optional_id,
    check_time,
    check_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from savermark.sandbox.records import Artifact, Entry, ForkRequest, WriterIdentity


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint as a store keeps it: valid, normalised, and sharing nothing mutable."""

    id: str
    thread_id: str
    parent_id: str | None
    created_at: float
    reason: str
    label: str | None
    source_run_id: str | None
    files: tuple[Entry, ...]
    artifacts: tuple[Artifact, ...]
    conversation: str  # JSON

    def thaw(self) -> SandboxCheckpoint:
        """The checkpoint as callers see it, in new objects."""
        return SandboxCheckpoint(
            id=self.id,
            thread_id=self.thread_id,
            created_at=self.created_at,
            parent_checkpoint_id=self.parent_id,
            reason=self.reason,
            label=self.label,
            source_run_id=self.source_run_id,
            files=self.files,
            conversation=from_json(self.conversation),
            artifacts=self.artifacts,
        )


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """What a write sees in its transaction: the thread, the time, and whether the id is used."""

    state: ThreadState
    now: float
    id_used: bool = False


def blob_keys(snapshot: Snapshot) -> list[str]:
    """The distinct blob keys of a checkpoint, by UTF-8 bytes."""
    keys = {entry.blob_key for entry in snapshot.files if isinstance(entry, FileEntry)}
    keys.update(artifact.blob_key for artifact in snapshot.artifacts)
    return sorted(keys)


def check_append_ids(
    checkpoint: SandboxCheckpoint, expected_head_id: Any, writer: WriterIdentity | None
) -> None:
    """Check 1 of append: every id that came with it. Raises INVALID_ID."""
    check_id(checkpoint.id, "checkpoint id")
    check_id(checkpoint.thread_id, "thread id")
    check_optional_id(checkpoint.parent_checkpoint_id, "parent checkpoint id")
    check_optional_id(expected_head_id, "expected head id")
    check_writer_id(writer)


def check_writer_id(writer: WriterIdentity | None) -> None:
    """Raises INVALID_ID when there is a writer and its thread id is no id."""
    if writer is not None:
        check_id(getattr(writer, "thread_id", None), "the writer's thread id")


def freeze(checkpoint: SandboxCheckpoint, *, symlinks: bool) -> Snapshot:
    """Check 2 of append: a copy whose content is valid. Raises INVALID_ENTRY."""
    check_words(
        reason=checkpoint.reason, label=checkpoint.label, source_run_id=checkpoint.source_run_id
    )
    return Snapshot(
        id=checkpoint.id,
        thread_id=checkpoint.thread_id,
        parent_id=checkpoint.parent_checkpoint_id,
        created_at=check_time(checkpoint.created_at, "created_at"),
        reason=str(checkpoint.reason),
        label=checkpoint.label,
        source_run_id=checkpoint.source_run_id,
        files=check_files(checkpoint.files, symlinks=symlinks),
        artifacts=check_artifacts(checkpoint.artifacts),
        conversation=freeze_conversation(checkpoint.conversation),
    )


def freeze_conversation(messages: Any) -> str:
    """The messages as JSON. Raises INVALID_ENTRY for what is no list of JSON data."""
    if not isinstance(messages, (list, tuple)):
        raise SandboxCheckpointInvalidEntryError(
            f"conversation must be a list of messages, not {type(messages).__name__}"
        )
    try:
        return to_json(messages)
    except (TypeError, ValueError, RecursionError) as error:
        raise SandboxCheckpointInvalidEntryError(
            f"conversation must be JSON data: {error}"
        ) from error


def check_append(
    snapshot: Snapshot,
    expected_head_id: str | None,
    writer: WriterIdentity | None,
    facts: ThreadFacts,
) -> None:
    """Checks 3 to 6 of append: writer, id, head, parent, in that order."""
    check_writer_thread(writer, snapshot.thread_id)
    check_current(facts.state, writer, facts.now)
    if facts.id_used:
        raise duplicate_id(snapshot.id)
    if facts.state.head_id != expected_head_id:
        raise SandboxCheckpointConflictError(
            f"the head is {facts.state.head_id!r:.80}, not {expected_head_id!r:.80}; "
            "read the head and append to it"
        )
    if snapshot.parent_id != expected_head_id:
        raise SandboxCheckpointParentMismatchError(
            f"the parent {snapshot.parent_id!r:.80} is not the head {expected_head_id!r:.80}"
        )


def duplicate_id(checkpoint_id: str) -> SandboxCheckpointDuplicateIdError:
    """The error for an id that was used before, be it removed since."""
    return SandboxCheckpointDuplicateIdError(
        f"checkpoint id {checkpoint_id!r:.80} was used before; take a new one"
    )


def check_is_head(state: ThreadState, checkpoint_id: str) -> None:
    """Raises NOT_HEAD unless the checkpoint is the head."""
    if state.head_id != checkpoint_id:
        raise SandboxCheckpointNotHeadError(
            f"{checkpoint_id!r:.80} is not the head of its thread; only the head can be deleted"
        )


def head_chain(head_id: str | None, parents: Mapping[str, str | None]) -> Iterable[str]:
    """The ids from the head to the oldest stored ancestor.

    `parents` holds the stored checkpoints of the thread. A parent that is not stored ends the
    chain, and so does an id that comes again, which only a damaged store can hold.
    """
    seen: set[str] = set()
    at = head_id
    while at is not None and at in parents and at not in seen:
        seen.add(at)
        yield at
        at = parents[at]


def plan_keep_newest(
    head_id: str | None, parents: Mapping[str, str | None], keep: int
) -> tuple[str, ...]:
    """The ids that go when the newest `keep` of the head chain stay, oldest first."""
    return tuple(reversed(list(head_chain(head_id, parents))[keep:]))


def check_fork_request(request: ForkRequest) -> float:
    """The checks of a fork that need no store, and its time. Raises by their order."""
    check_id(request.source_thread_id, "source thread id")
    check_id(request.source_checkpoint_id, "source checkpoint id")
    check_id(request.destination_thread_id, "destination thread id")
    check_id(request.destination_checkpoint_id, "destination checkpoint id")
    check_writer_id(request.writer)
    created_at = check_time(request.created_at, "created_at")
    if request.source_thread_id == request.destination_thread_id:
        raise SandboxCheckpointForkSourceThreadMismatchError(
            "source and destination are one thread; fork into a new one"
        )
    return created_at


def check_fork_source(source: Snapshot | None, request: ForkRequest) -> Snapshot:
    """The source. Raises when it is missing or of another thread."""
    if source is None:
        raise SandboxCheckpointForkSourceNotFoundError(
            f"no checkpoint {request.source_checkpoint_id!r:.80} to fork from"
        )
    if source.thread_id != request.source_thread_id:
        raise SandboxCheckpointForkSourceThreadMismatchError(
            f"checkpoint {source.id!r:.80} is not of thread {request.source_thread_id!r:.80}"
        )
    return source


def check_fork_destination(request: ForkRequest, facts: ThreadFacts, occupied: bool) -> None:
    """The writer's lease, then the emptiness of the destination."""
    check_writer_thread(request.writer, request.destination_thread_id)
    check_current(facts.state, request.writer, facts.now)
    if occupied or facts.id_used or facts.state.head_id is not None:
        raise destination_not_empty(request)


def destination_not_empty(
    request: ForkRequest,
) -> SandboxCheckpointForkDestinationNotEmptyError:
    """The error for a destination that was used before."""
    return SandboxCheckpointForkDestinationNotEmptyError(
        f"thread {request.destination_thread_id!r:.80} or checkpoint id "
        f"{request.destination_checkpoint_id!r:.80} was used before; fork into a new one"
    )


def fork_root(source: Snapshot, request: ForkRequest, created_at: float) -> Snapshot:
    """The first checkpoint of the destination: the source's content under a new id."""
    return replace(
        source,
        id=request.destination_checkpoint_id,
        thread_id=request.destination_thread_id,
        parent_id=None,
        created_at=created_at,
        reason=str(CheckpointReason.FORK_ROOT),
        label=None,
        source_run_id=None,
    )
