"""Duration-only checkpoints: metadata copies of the head that record how long runs took.

An application appends them after a run (`persist_run_durations`): same values, same versions, a new
id. They are told by a marker in the metadata, or, where the saver drops it (Postgres), by shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base.id import uuid6

from savermark.history.kinds import is_memory, unwrapped
from savermark.history.lineage import is_reserved

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

    from savermark.history.image import CheckpointRow, ThreadImage

MARKER = "runtime_run_duration"
DURATIONS = "run_durations"
MESSAGES = "run_message_ids"
ATTEMPTS = 3  # reads of a head that moves, before the durations are left to a later call
_CONTROL = frozenset({"__error__", "__scheduled__", "__interrupt__", "__resume__"})


def is_duration_only(image: ThreadImage, row: CheckpointRow) -> bool:
    """Whether a checkpoint only records durations.

    The marker is final where the metadata has a mapping under `writes`. Without one the shape
    decides: an update with stamps whose stored parent has the same versions.
    """
    parent = image.row(row.checkpoint_ns, row.parent_id) if row.parent_id else None
    if row.unreadable or (parent is not None and parent.unreadable):
        parent = None  # versions that could not be read equal nothing
    return has_shape(row.metadata, row.versions, parent.versions if parent else None)


def has_shape(
    metadata: Mapping[str, Any],
    versions: Mapping[str, Any],
    parent_versions: Mapping[str, Any] | None,
) -> bool:
    """`is_duration_only` on what a checkpoint tells; None for a parent that is not stored."""
    if isinstance(marker := metadata.get("writes"), Mapping):
        return MARKER in marker
    stamped = any(
        isinstance(found := metadata.get(name), Mapping) and found for name in (DURATIONS, MESSAGES)
    )
    return (
        metadata.get("source") == "update"
        and stamped
        and parent_versions is not None
        and versions == parent_versions
    )


def state_neutral(image: ThreadImage, row: CheckpointRow) -> bool:
    """Whether a copy like `row` has the state of its stored parent.

    Its parent's own writes in delta channels are rebuilt into the copy, so there must be none.
    """
    parent = image.row(row.checkpoint_ns, row.parent_id) if row.parent_id else None
    return parent is not None and not delta_writes(image, parent)


def delta_writes(image: ThreadImage, row: CheckpointRow) -> frozenset[str]:
    """The channels of a checkpoint's own writes that may be delta channels, by the data alone.

    A channel is none only where the checkpoint stores it as a plain value and no checkpoint of the
    namespace counts it, snapshots it or lacks its value.
    """
    written = {
        write.channel
        for write in image.own_writes.get(row.key, ())
        if write.channel not in _CONTROL and not is_reserved(write.channel)
    }
    plain = row.stored | row.nulls
    for other in image.spaces.get(row.checkpoint_ns, {}).values() if written & plain else ():
        absent = other.versions.keys() - other.stored - other.nulls
        plain = plain - other.counted - other.snapshots - absent
    return frozenset(written - plain)


def duration_leaf(
    head: CheckpointTuple,
    durations: Mapping[str, int],
    message_run_ids: Mapping[str, str] | None = None,
) -> tuple[Any, ...] | None:
    """The arguments of the `put` that records these, or None when there is nothing to record.

    `durations` are seconds by run id, `message_run_ids` run ids by message id; what is malformed is
    dropped, a negative duration counts as 0. A head that waits for an answer is left alone.
    """
    if any(channel == "__interrupt__" for _, channel, _ in head.pending_writes or ()):
        return None
    before: dict[str, Any] = dict(head.metadata)
    times = {run: max(0, spent) for run, spent in durations.items() if _is_duration(run, spent)}
    runs = {key: run for key, run in (message_run_ids or {}).items() if _texts(key, run)}
    old_times, old_runs = before.get(DURATIONS) or {}, before.get(MESSAGES) or {}
    new_times = [run for run, spent in times.items() if old_times.get(run) != spent]
    new_runs = [key for key, run in runs.items() if old_runs.get(key) != run]
    if not new_times and not new_runs:
        return None
    metadata = {
        **before,
        "source": "update",
        "step": before.get("step", 0) + 1,
        DURATIONS: {**old_times, **times},
        MESSAGES: {**old_runs, **runs},
        "writes": {MARKER: {"run_ids": sorted(new_times), "message_ids": sorted(new_runs)}},
    }
    if not metadata[MESSAGES]:
        del metadata[MESSAGES]
    checkpoint = {
        **head.checkpoint,
        "id": str(uuid6(clock_seq=-2)),
        "ts": datetime.now(UTC).isoformat(),
    }
    return head.config, checkpoint, metadata, {}


def persist_run_durations(
    saver: BaseCheckpointSaver[Any],
    thread_id: str | int,
    durations: Mapping[str, int],
    message_run_ids: Mapping[str, str] | None = None,
) -> bool:
    """Append a duration-only checkpoint to the root namespace; whether one was written.

    The caller holds the thread's lock. A head that moved meanwhile is read again, `ATTEMPTS` times.
    """
    config = root_config(saver, thread_id)
    for _ in range(ATTEMPTS):
        head = saver.get_tuple(config)
        put = duration_leaf(head, durations, message_run_ids) if head else None
        if head is None or put is None:
            return False
        if _same(head, saver.get_tuple(config)):
            saver.put(*put)
            return True
    return False


async def apersist_run_durations(
    saver: BaseCheckpointSaver[Any],
    thread_id: str | int,
    durations: Mapping[str, int],
    message_run_ids: Mapping[str, str] | None = None,
) -> bool:
    """The async twin of `persist_run_durations`."""
    config = root_config(saver, thread_id)
    for _ in range(ATTEMPTS):
        head = await saver.aget_tuple(config)
        put = duration_leaf(head, durations, message_run_ids) if head else None
        if head is None or put is None:
            return False
        if _same(head, await saver.aget_tuple(config)):
            await saver.aput(*put)
            return True
    return False


def root_config(saver: BaseCheckpointSaver[Any], thread_id: str | int) -> RunnableConfig:
    """The config of a thread's newest root checkpoint.

    Thread ids are text; the memory saver may hold one as the number that was put.
    """
    thread: str | int = str(thread_id)
    inner = unwrapped(saver)
    if is_memory(inner):
        from savermark.history.memory import MemoryRows

        thread = MemoryRows(inner).raw(str(thread_id))
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def _same(head: CheckpointTuple, again: CheckpointTuple | None) -> bool:
    return again is not None and again.checkpoint["id"] == head.checkpoint["id"]


def _is_duration(run: Any, spent: Any) -> bool:
    known = isinstance(run, str) and bool(run)
    return known and isinstance(spent, int) and not isinstance(spent, bool)


def _texts(*values: Any) -> bool:
    return all(isinstance(value, str) and value for value in values)
