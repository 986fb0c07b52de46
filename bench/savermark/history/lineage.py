"""Which checkpoints a checkpoint cannot do without: the rules, without a store.

Each backend fills in the records (`image`) by its own rule of what it stores; the rules here are
the same for all. A **seed** is a stored value at which the rebuild of a delta channel starts; a
**keep-set** is a checkpoint and its ancestors back to the seeds it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Literal

from savermark.errors import ContractError, UsageError
from savermark.history.image import (
    COUNTERS,
    NOTHING,
    BlobKey,
    BlobRow,
    CheckpointKey,
    CheckpointRow,
    ThreadImage,
    WriteKey,
    WriteRow,
    counted_channels,
)

__all__ = [
    "COUNTERS",
    "TASKS",
    "BlobKey",
    "BlobRow",
    "Channels",
    "CheckpointKey",
    "CheckpointRow",
    "KeepSet",
    "LineageError",
    "ThreadImage",
    "WriteKey",
    "WriteRow",
    "chain",
    "counted_channels",
    "is_reserved",
    "keep_all",
    "keep_ids",
    "missing_values",
]

Channels = Literal["auto"] | Sequence[str]

TASKS = "__pregel_tasks"  # the channel of pending sends
# Channels the runtime keeps for itself: empty most of the time, and never rebuilt from writes.
RESERVED = frozenset(
    {TASKS, "__start__", "__end__", "__previous__", "__input__", "__return__", "__no_writes__"}
    | {"__error__", "__interrupt__", "__resume__"}
)
TRIGGER = "branch:to:"


class LineageError(ContractError):
    """A chain that names a missing parent, runs in a circle, or cannot be read.

    `missing` is the id of the parent that is not stored, None for a circle or an unreadable row.
    """

    def __init__(
        self, thread_id: str, checkpoint_ns: str, checkpoint_id: str, missing: str | None, what: str
    ) -> None:
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        self.missing = missing
        super().__init__(
            f"thread {thread_id!r}, namespace {checkpoint_ns!r}: checkpoint {checkpoint_id} {what}"
        )

    @classmethod
    def broken(
        cls, thread_id: str, checkpoint_ns: str, checkpoint_id: str, missing: str
    ) -> LineageError:
        """A parent that is named and not stored."""
        what = f"names parent {missing}, which is not stored: restore that row, or leave the thread"
        return cls(thread_id, checkpoint_ns, checkpoint_id, missing, what)

    @classmethod
    def circle(cls, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> LineageError:
        """A checkpoint that is its own ancestor."""
        what = "is its own ancestor: give one of the circle its right parent, or leave the thread"
        return cls(thread_id, checkpoint_ns, checkpoint_id, None, what)

    @classmethod
    def unreadable(
        cls, thread_id: str, checkpoint_ns: str, checkpoint_id: str, tag: str
    ) -> LineageError:
        """A row in a form that is not read without the application's own serializer."""
        what = f"is stored as {tag!r}: open it through a saver with the serializer that wrote it"
        return cls(thread_id, checkpoint_ns, checkpoint_id, None, what)


class KeepSet(frozenset[str]):
    """The ids of one namespace that must stay; equal to any set of the same ids.

    `targets` are the checkpoints asked for. The others are `support`: they stay for the targets'
    sake and may themselves read back wrong, so they are never offered to resume from.
    """

    targets: frozenset[str]

    def __new__(cls, ids: Iterable[str] = (), targets: Iterable[str] = ()) -> KeepSet:
        made = super().__new__(cls, ids)
        made.targets = frozenset(targets)
        return made

    @property
    def support(self) -> frozenset[str]:
        """The ids that stay only to support the targets."""
        return frozenset(self) - self.targets

    @classmethod
    def merge(cls, sets: Iterable[KeepSet]) -> KeepSet:
        """The union; what is a target in one is a target in the whole."""
        parts = list(sets)
        return cls(frozenset().union(*parts), frozenset().union(*(part.targets for part in parts)))


def is_reserved(channel: str) -> bool:
    """Whether the runtime keeps this channel for itself, so that it is never a delta channel."""
    return channel in RESERVED or channel.startswith(TRIGGER)


def check_channels(channels: Channels) -> tuple[str, ...] | None:
    """The channels as a tuple, None for "auto". Raises `UsageError` for another bare string."""
    if isinstance(channels, str):
        if channels != "auto":
            raise UsageError(f'channels must be a list of names or "auto", not {channels!r}')
        return None
    return tuple(dict.fromkeys(channels))


def missing_values(row: CheckpointRow, channels: Channels = "auto") -> tuple[set[str], set[str]]:
    """The channels of `row` that a read must rebuild from ancestors: (certain, doubtful).

    Only a channel that has a version and no value here is rebuilt. "auto" looks at the data alone:
    a channel that the metadata counts is certainly a delta channel, one the runtime reserves is
    none, any other may be one (of another graph that shares the thread, or of a runtime that does
    not count) or may be one that simply holds nothing. Channels asked for by name are certain.
    """
    named = check_channels(channels)
    absent = row.versions.keys() - row.stored - row.nulls
    if named is not None:
        return absent.intersection(named), set()
    certain = absent & row.counted
    return certain, {name for name in absent - certain if not is_reserved(name)}


Needs = Generator[str, CheckpointRow | None, KeepSet]
Memo = dict[str, frozenset[str]]  # checkpoint id -> channels still sought above it


def needs(
    thread_id: str,
    target: CheckpointRow,
    channels: Channels = "auto",
    *,
    sends: bool = False,
    memo: Memo | None = None,
) -> Needs:
    """The keep-set of `target`: yields an id, is sent that checkpoint or None, returns the set.

    Follows parent links and nothing else. A doubtful channel counts from the first ancestor on
    that counts or snapshots it. One of which no ancestor tells anything counts only where the
    metadata counts nothing at all: then silence proves nothing.

    `sends` says that the parent owns pending sends: a checkpoint older than format 4 has them
    there, so the parent stays. With one `memo` for several targets of a namespace a walk ends
    where an earlier one has been, and only the union of the sets is whole. Raises `LineageError`.
    """
    certain, doubtful = missing_values(_readable(thread_id, target), channels)
    kept, seen, trail = {target.checkpoint_id}, {target.checkpoint_id}, list[str]()
    if sends and target.v < 4 and target.parent_id is not None:
        kept.add(target.parent_id)
    row, counting = target, bool(target.counted)
    while (certain or doubtful) and row.parent_id is not None:
        row = _linked(thread_id, row, (yield row.parent_id), seen)
        trail.append(row.checkpoint_id)
        counting = counting or bool(row.counted)
        certain, doubtful, needed = _settle(row, certain, doubtful, counting)
        if needed:
            kept.update(trail)
            trail.clear()
        if memo is not None and not doubtful:
            if certain <= memo.get(row.checkpoint_id, NOTHING):
                break
            memo[row.checkpoint_id] = frozenset(certain)
    if doubtful and not counting:
        kept.update(trail)
    return KeepSet(kept, {target.checkpoint_id})


def _linked(
    thread_id: str, child: CheckpointRow, found: CheckpointRow | None, seen: set[str]
) -> CheckpointRow:
    """The parent as it was found, if the chain can go on there."""
    if found is None:
        raise LineageError.broken(thread_id, child.checkpoint_ns, *_link(child))
    row = _readable(thread_id, found)
    if row.checkpoint_id in seen:
        raise LineageError.circle(thread_id, row.checkpoint_ns, row.checkpoint_id)
    seen.add(row.checkpoint_id)
    return row


def _settle(
    row: CheckpointRow, certain: set[str], doubtful: set[str], counting: bool
) -> tuple[set[str], set[str], bool]:
    """What is still sought above an ancestor, and whether it and what lies below are needed."""
    proven = doubtful & (row.counted | row.snapshots)
    settled = (doubtful - proven) & row.stored
    wanted = certain | proven
    needed = bool(wanted) or (bool(settled) and not counting)
    return wanted - row.stored, doubtful - proven - settled, needed


def keep_ids(
    image: ThreadImage, checkpoint_ns: str, target_id: str, channels: Channels = "auto"
) -> KeepSet:
    """The ids that must stay so that `target_id` reads back as it does now.

    An unknown target needs nothing. Raises `LineageError` for a chain that cannot be followed.
    """
    return keep_all(image, checkpoint_ns, (target_id,), channels)


def keep_all(
    image: ThreadImage,
    checkpoint_ns: str,
    target_ids: Iterable[str],
    channels: Channels = "auto",
) -> KeepSet:
    """The union of the keep-sets of several checkpoints of one namespace, each link walked once."""
    rows = image.spaces.get(checkpoint_ns, {})
    memo: Memo = {}
    parts = [KeepSet()]
    for target_id in sorted(rows.keys() & set(target_ids), reverse=True):
        target = rows[target_id]
        walk = needs(image.thread_id, target, channels, sends=_owns_sends(image, target), memo=memo)
        parts.append(answer(walk, rows.get))
    return KeepSet.merge(parts)


def answer(walk: Needs, find: Callable[[str], CheckpointRow | None]) -> KeepSet:
    """Drive `needs` with a function that finds a checkpoint by id."""
    found: CheckpointRow | None = None
    while True:
        try:
            found = find(walk.send(found))
        except StopIteration as stop:
            result: KeepSet = stop.value
            return result


def chain(image: ThreadImage, checkpoint_ns: str, checkpoint_id: str) -> tuple[CheckpointRow, ...]:
    """A checkpoint and all its ancestors, itself first; empty when it is not stored.

    Raises `LineageError` where a parent is missing or the links run in a circle.
    """
    rows = image.spaces.get(checkpoint_ns, {})
    found: dict[str, CheckpointRow] = {}
    row = rows.get(checkpoint_id)
    while row is not None:
        if row.checkpoint_id in found:
            raise LineageError.circle(image.thread_id, checkpoint_ns, row.checkpoint_id)
        found[row.checkpoint_id] = row
        if row.parent_id is None:
            break
        if row.parent_id not in rows:
            raise LineageError.broken(image.thread_id, checkpoint_ns, *_link(row))
        row = rows[row.parent_id]
    return tuple(found.values())


def _owns_sends(image: ThreadImage, row: CheckpointRow) -> bool:
    if row.v >= 4 or row.parent_id is None:
        return False
    parent = (row.checkpoint_ns, row.parent_id)
    stored = image.row(*parent) is not None
    return stored and any(write.channel == TASKS for write in image.own_writes.get(parent, ()))


def _link(row: CheckpointRow) -> tuple[str, str]:
    return row.checkpoint_id, row.parent_id or ""


def _readable(thread_id: str, row: CheckpointRow) -> CheckpointRow:
    if row.unreadable:
        raise LineageError.unreadable(
            thread_id, row.checkpoint_ns, row.checkpoint_id, row.unreadable
        )
    return row
