"""Duration-only checkpoints: metadata copies of the head, as a retention contract knows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base.id import uuid6

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

    from savermark.script import Duration


def duration_put(head: CheckpointTuple | None, event: Duration) -> tuple[Any, ...] | None:
    """The arguments of the `put` that records a run's duration, or None when nothing is to be done.

    The copy differs from the head in id and time only: same versions, same values, no new ones.
    A thread without checkpoints has nothing to copy; a head that waits for an answer is left alone.
    """
    if head is None or any(
        channel == "__interrupt__" for _, channel, _ in head.pending_writes or ()
    ):
        return None
    checkpoint = {
        **head.checkpoint,
        "id": str(uuid6(clock_seq=-2)),
        "ts": datetime.now(UTC).isoformat(),
    }
    before: dict[str, Any] = dict(head.metadata)
    metadata = {
        **before,
        "source": "update",
        "step": before.get("step", 0) + 1,
        "run_durations": {**before.get("run_durations", {}), event.run_id: event.seconds},
        "writes": {"runtime_run_duration": {"run_ids": [event.run_id], "message_ids": []}},
    }
    return head.config, checkpoint, metadata, {}
