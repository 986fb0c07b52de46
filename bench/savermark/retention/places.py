"""Branch points of a thread on a saver: `branching` over real checkpoints.

base = branch_point(saver, "thread-1", "message-7", graph=graph)
graph.invoke({"messages": [...]}, {"configurable": {"thread_id": "thread-1", **base}})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from savermark.retention.asking import Ask, Failure, Reader, adrive, drive
from savermark.retention.branching import (
    MAX_DEPTH,
    LineageIntegrity,
    Lookup,
    ParentMissing,
    Place,
    scan_before_message,
)
from savermark.retention.duration import has_shape
from savermark.retention.reading import Lens, Seen, lens_of, place_of, read_checkpoint
from savermark.retention.support import support_rows

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.history.image import CheckpointRow


def branch_point(
    saver: BaseCheckpointSaver[Any],
    thread_id: str,
    message_id: str,
    *,
    graph: Any = None,
    channels: Mapping[str, Any] | None = None,
    messages: str = "messages",
    max_depth: int = MAX_DEPTH,
    support: Iterable[str] = (),
) -> str:
    """The id of the checkpoint to branch from so that a message is as if it had not come.

    Walks from the newest checkpoint; where the walk comes to a root, scans what is older, as a
    pruned thread needs it. Checkpoints that stay only for others' sake are left out: those that the
    rows show (`support_rows`), where the saver's tables are known, and the ids in `support`.
    Arguments as of `snapshot_promises`. Raises `BranchError`.
    """
    lens = lens_of(saver, graph, channels, messages)
    return drive(saver, lens.graph, _found(thread_id, message_id, lens, max_depth, set(support)))


async def abranch_point(
    saver: BaseCheckpointSaver[Any],
    thread_id: str,
    message_id: str,
    *,
    graph: Any = None,
    channels: Mapping[str, Any] | None = None,
    messages: str = "messages",
    max_depth: int = MAX_DEPTH,
    support: Iterable[str] = (),
) -> str:
    """The async twin of `branch_point`."""
    lens = lens_of(saver, graph, channels, messages)
    work = _found(thread_id, message_id, lens, max_depth, set(support))
    return await adrive(saver, lens.graph, work)


def _found(thread: str, message: str, lens: Lens, max_depth: int, support: set[str]) -> Reader[str]:
    head = yield from _place(thread, None, lens)
    if head is None:
        raise LineageIntegrity(f"thread {thread!r} has no checkpoint")
    rows = yield from _rows(thread)
    support |= {name for space, name in support_rows(rows) if space == ""}
    lookup = Lookup(head, [message], max_depth)
    seen = {head.checkpoint_id}
    while (asked := lookup.wants) is not None:
        place = yield from _place(thread, asked, lens)
        seen.add(asked)
        if place is not None and asked in support:
            lookup.skip(place)
        else:
            lookup.feed(place)
    outcome = lookup.found[message]
    if isinstance(outcome, str):
        return outcome
    if isinstance(outcome, ParentMissing):
        ids = sorted({row.checkpoint_id for row in rows if row.checkpoint_ns == ""} - support)
        older = yield from _older(thread, [one for one in ids if one < min(seen)], lens)
        base = scan_before_message([*older, head], message)
        if base is not None:
            return base
    raise outcome


def _rows(thread: str) -> Reader[list[CheckpointRow]]:
    """The checkpoint rows of the thread; none where the saver's tables are unknown."""
    listed = yield Ask("rows", thread)
    return [] if isinstance(listed, Failure) else cast("list[CheckpointRow]", listed)


def _older(thread: str, ids: list[str], lens: Lens) -> Reader[list[Place]]:
    """The checkpoints of these ids, oldest first, as far as the budget of a scan goes."""
    places = []
    for one in ids[:MAX_DEPTH]:
        place = yield from _place(thread, one, lens)
        places += [place] if place else []
    return places


def _place(thread: str, checkpoint_id: str | None, lens: Lens) -> Reader[Place | None]:
    seen: Seen | None = yield from read_checkpoint(
        Ask("tuple", thread, "", checkpoint_id), lens, ()
    )
    if seen is None or seen.found is None:
        return None
    found = seen.found
    metadata: Any = found.metadata or {}
    above = None
    if found.parent_config and metadata.get("source") == "update":
        parent = found.parent_config["configurable"]["checkpoint_id"]
        answer = yield Ask("tuple", thread, "", parent)
        if answer is not None and not isinstance(answer, Failure):
            above = answer.checkpoint["channel_versions"]
    only = has_shape(metadata, found.checkpoint["channel_versions"], above)
    return place_of(found, seen.messages, duration_only=only)
