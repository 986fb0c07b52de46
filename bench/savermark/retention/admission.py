"""The bounded cleanup at admission: at most one duration-only leaf, before a run's first read.

To be called when a run has won the thread and holds its lock, never when a run ends: while the
thread is idle the leaf is what answers history reads. Two lookups, one probe and one conditional
delete, however long the history is. Whatever goes wrong, the run goes on and the leaf stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savermark.history.leaf import Leaf, aleaves, leaves
from savermark.retention.duration import has_shape, root_config
from savermark.retention.exhaustive import Protect, protected_ids
from savermark.retention.lifecycle import lifecycle_of

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

    from savermark.retention.records import CacheLifecycle


@dataclass(frozen=True, slots=True)
class Admission:
    """What the cleanup did: the id it deleted, else why it deleted nothing, in one line.

    `failed` tells an error from a leaf that had better stay.
    """

    thread_id: str
    deleted: str = ""
    why: str = ""
    failed: bool = False


def clean_admission(
    saver: BaseCheckpointSaver[Any],
    thread_id: str | int,
    *,
    protect: Protect = (),
    lifecycle: CacheLifecycle | None = None,
) -> Admission:
    """Delete the newest root checkpoint if it is a duration-only leaf that changes nothing.

    `protect` are the run's own checkpoint id and its `checkpoint_map`. Never raises an `Exception`.
    """
    thread = str(thread_id)
    try:
        store = leaves(saver)
        head = saver.get_tuple(root_config(saver, thread_id))
        leaf = _leaf(thread, head, protect)
        if head is None or isinstance(leaf, str):
            return Admission(thread, why=str(leaf))
        why = _differs(head, saver.get_tuple(head.parent_config)) if head.parent_config else ""
        if why or store.has_writes(leaf):
            return Admission(thread, why=why or _WRITES)
        lifecycle_of(saver, lifecycle).invalidate(thread)
        return _outcome(leaf, store.remove(leaf))
    except Exception as error:  # a run must not fail for a row too many
        return _failure(thread, error)


async def aclean_admission(
    saver: BaseCheckpointSaver[Any],
    thread_id: str | int,
    *,
    protect: Protect = (),
    lifecycle: CacheLifecycle | None = None,
) -> Admission:
    """The async twin of `clean_admission`; `lifecycle` is called beside the event loop."""
    thread = str(thread_id)
    try:
        store = aleaves(saver)
        head = await saver.aget_tuple(root_config(saver, thread_id))
        leaf = _leaf(thread, head, protect)
        if head is None or isinstance(leaf, str):
            return Admission(thread, why=str(leaf))
        up = head.parent_config
        why = _differs(head, await saver.aget_tuple(up)) if up else ""
        if why or await store.has_writes(leaf):
            return Admission(thread, why=why or _WRITES)
        await asyncio.to_thread(lifecycle_of(saver, lifecycle).invalidate, thread)
        return _outcome(leaf, await store.remove(leaf))
    except Exception as error:  # a run must not fail for a row too many
        return _failure(thread, error)


_WRITES = "the newest checkpoint owns writes"


def _leaf(thread: str, head: CheckpointTuple | None, protect: Protect) -> Leaf | str:
    """What the newest checkpoint alone tells: a leaf to look at further, or why it stays."""
    protected = protected_ids(protect)
    if head is None:
        return "the thread has no checkpoint"
    where = head.config["configurable"]
    versions = head.checkpoint["channel_versions"]
    # By shape the parent's versions decide; that they are equal is asked of every leaf anyway.
    if not has_shape(_told(head), versions, versions):
        return "the newest checkpoint is not duration-only"
    if head.parent_config is None:
        return "the newest checkpoint has no parent"
    if where["checkpoint_id"] in protected:
        return "the newest checkpoint is protected"
    if head.pending_writes:
        return _WRITES
    parent = head.parent_config["configurable"]
    if parent.get("checkpoint_ns", "") != where.get("checkpoint_ns", ""):
        return "its parent is of another namespace"
    return Leaf(
        thread, where.get("checkpoint_ns", ""), where["checkpoint_id"], parent["checkpoint_id"]
    )


def _differs(head: CheckpointTuple, parent: CheckpointTuple | None) -> str:
    """Why the parent would not be the same state when it is the newest again, else empty."""
    if parent is None:
        return "its parent is not stored"
    old, new = parent.checkpoint, head.checkpoint
    if old["channel_versions"] != new["channel_versions"]:
        return "its versions differ from its parent's"
    if not new["channel_values"].keys() <= old["channel_values"].keys():
        return "it stores values that its parent does not"
    if parent.pending_writes:
        # They are in the leaf's past, or would be pending again: either way a visible change.
        return "its parent owns writes"
    return ""


def _told(head: CheckpointTuple) -> Mapping[str, Any]:
    return head.metadata or {}


def _outcome(leaf: Leaf, removed: bool) -> Admission:
    if removed:
        return Admission(leaf.thread_id, deleted=leaf.checkpoint_id)
    return Admission(leaf.thread_id, why="the thread changed meanwhile")


def _failure(thread: str, error: Exception) -> Admission:
    text = " ".join(str(error).split())
    return Admission(thread, why=f"{type(error).__name__}: {text}", failed=True)
