"""The rules of the writer lease, decided on values: who holds it, who may take it, until when."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from savermark.sandbox.errors import (
    SandboxCheckpointWriterConflictError,
    SandboxCheckpointWriterLostError,
    SandboxRangeError,
)

if TYPE_CHECKING:
    from savermark.sandbox.records import WriterIdentity


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a lease lasts and after what time its holder should renew it."""

    duration_ms: float = 120_000.0
    renew_after_ms: float = 45_000.0

    def __post_init__(self) -> None:
        """Raises `SandboxRangeError` for times that could not work."""
        for name in ("duration_ms", "renew_after_ms"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise SandboxRangeError(f"{name} must be a number, not {value!r}")
            if not math.isfinite(value) or value <= 0:
                raise SandboxRangeError(f"{name} must be finite and above 0, not {value!r}")
        if self.renew_after_ms >= self.duration_ms:
            raise SandboxRangeError("renew_after_ms must be shorter than duration_ms")


@dataclass(frozen=True, slots=True)
class ThreadState:
    """The head and the lease of a thread.

    `fence` is that of the newest lease ever given, held or not; `owner_token` is None when the
    lease was released.
    """

    head_id: str | None = None
    fence: int = 0
    owner_token: str | None = None
    expires_at: float = 0.0


def is_current(state: ThreadState, writer: WriterIdentity | None, now: float) -> bool:
    """Whether the writer holds the lease, unexpired."""
    return (
        writer is not None
        and state.owner_token is not None
        and state.owner_token == writer.owner_token
        and state.fence == writer.fence
        and now < state.expires_at
    )


def check_current(state: ThreadState, writer: WriterIdentity | None, now: float) -> None:
    """Raises WRITER_LOST unless the writer holds the lease, unexpired."""
    if not is_current(state, writer, now):
        raise SandboxCheckpointWriterLostError(
            "the writer lease expired, was released or was replaced; acquire it again"
        )


def check_writer_thread(writer: WriterIdentity | None, thread_id: str) -> None:
    """Raises WRITER_LOST when the writer is missing or of another thread."""
    if writer is None or writer.thread_id != thread_id:
        raise SandboxCheckpointWriterLostError(
            f"the writer does not hold thread {thread_id!r:.80}; acquire that thread's lease"
        )


def taken(state: ThreadState, token: str, now: float, times: LeaseTimes) -> ThreadState:
    """The state after a new lease. Raises WRITER_CONFLICT while another is unexpired."""
    if state.owner_token is not None and now < state.expires_at:
        raise SandboxCheckpointWriterConflictError(
            "another writer holds the lease of this thread; try again when it is released"
        )
    return replace(
        state, fence=state.fence + 1, owner_token=token, expires_at=now + times.duration_ms
    )


def renewed(
    state: ThreadState, writer: WriterIdentity, now: float, times: LeaseTimes
) -> ThreadState:
    """The state with the expiry moved to now plus the duration. Raises WRITER_LOST."""
    check_current(state, writer, now)
    return replace(state, expires_at=now + times.duration_ms)


def released(state: ThreadState, writer: WriterIdentity) -> ThreadState | None:
    """The state without the writer's lease, or None when a newer lease replaced it."""
    if state.owner_token != writer.owner_token or state.fence != writer.fence:
        return None
    return replace(state, owner_token=None, expires_at=0.0)
