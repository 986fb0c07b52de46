"""Removing a duration-only link: its children are joined to its parent.

The contract of a link is proven before anything is touched, its writes go where no reader misses
them, and inside the transaction every child and the head are shown to be rebuilt from the same seed
and the same writes as before. What cannot be proven is refused, in one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from savermark.errors import ContractError
from savermark.history.image import COUNTERS, COUNTERS_OF_OLD
from savermark.history.lineage import TASKS, LineageError, chain, is_reserved
from savermark.retention.duration import delta_writes, is_duration_only
from savermark.retention.exhaustive import Protect, protected_ids
from savermark.retention.records import Graft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.history.image import CheckpointKey, CheckpointRow, ThreadImage, WriteRow
    from savermark.history.rows import ThreadTxn, Typed

NULL_TASK = "00000000-0000-0000-0000-000000000000"  # owns the writes of a command, not of a task

Values = Mapping[tuple[str, str], "Typed"]  # (child id, channel) -> the child's serialized value


class GraftRefused(ContractError):
    """A link that is not provably removable; nothing was changed."""


def plan_graft(image: ThreadImage, key: CheckpointKey, protected: Protect = ()) -> Graft:
    """How the link `key` is removed. Raises `GraftRefused` with the reason why it is not."""
    row = image.row(*key)
    found = graft_of(image, row, protected) if row else "it is not stored"
    if isinstance(found, str):
        where = f"thread {image.thread_id!r}, checkpoint {key[1]}"
        raise GraftRefused(f"{where}: not grafted, {found}")
    return found


def graft_of(image: ThreadImage, row: CheckpointRow, protected: Protect = ()) -> Graft | str:
    """How the link `row` is removed, or the reason why it is not."""
    parent = image.row(row.checkpoint_ns, row.parent_id) if row.parent_id else None
    if parent is None:
        return "its parent is not stored: restore that row, or leave the link"
    children = image.children.get(row.key, ())
    refusals = (
        _not_a_link(image, row, parent, children),
        _in_use(image, row, protected_ids(protected)),
        _unproven(image, row, parent, children),
        _pending(image, row, children),
    )
    for refusal in refusals:
        if refusal:
            return refusal
    return _handled(image, row, parent, children)


def apply_graft(txn: ThreadTxn, graft: Graft, values: Values | None = None) -> None:
    """Remove the link inside a transaction. Blobs stay: the parent names the same versions.

    `values` are needed for `snapshot` alone: for each child and each of `channels` that it does
    not store, what `serde.dumps_typed(_DeltaSnapshot(value))` gives for its explicit value.
    """
    space, link = graft.checkpoint_ns, graft.link_id
    if graft.handling == "snapshot":
        _store(txn, graft, values or {})
    elif graft.handling == "move":
        txn.move_writes(space, link, graft.parent_id)
    for child in graft.children:
        txn.reparent(space, child, graft.parent_id)
    txn.delete_writes_of([(space, link)])
    txn.delete_checkpoints([(space, link)])


def wanted_values(image: ThreadImage, graft: Graft) -> dict[str, tuple[str, ...]]:
    """The channels whose value each child must be given, by child; none but for `snapshot`."""
    wanted: dict[str, tuple[str, ...]] = {}
    for child in graft.children if graft.handling == "snapshot" else ():
        row = image.row(graft.checkpoint_ns, child)
        stored = row.stored if row else frozenset()
        if absent := tuple(name for name in graft.channels if name not in stored):
            wanted[child] = absent
    return wanted


def prove_graft(before: ThreadImage, after: ThreadImage, graft: Graft) -> None:
    """Show that nobody missed the link: raises `ContractError` where a reading would differ.

    Compares what each child, its new siblings and the head are rebuilt from. A channel that a child
    was given a snapshot of is compared by value, by whoever read it.
    """
    space = graft.checkpoint_ns
    watched = {row.checkpoint_id for row in after.children.get((space, graft.parent_id), ())}
    if not watched >= set(graft.children):
        raise ContractError(f"thread {before.thread_id!r}: a child was not joined to its parent")
    watched |= {*graft.children, before.heads[space].checkpoint_id}
    given = frozenset(graft.channels if graft.handling == "snapshot" else ())
    for name in sorted(watched):
        old, new = before.row(space, name), after.row(space, name)
        if old is None or new is None:
            raise ContractError(f"thread {before.thread_id!r}: checkpoint {name} is not stored")
        by_value = given if name in {*graft.children, before.heads[space].checkpoint_id} else ()
        for channel in sorted(old.versions.keys() - set(by_value)):
            if not is_reserved(channel) and _sources(before, old, channel) != _sources(
                after, new, channel
            ):
                raise ContractError(
                    f"thread {before.thread_id!r}: without link {graft.link_id} checkpoint {name} "
                    f"would read {channel!r} differently: nothing was changed"
                )
    if after.row(space, graft.link_id) or after.own_writes.get((space, graft.link_id)):
        raise ContractError(f"thread {before.thread_id!r}: link {graft.link_id} is still there")


# --- refusals -----------------------------------------------------------------------------------


def _not_a_link(
    image: ThreadImage, row: CheckpointRow, parent: CheckpointRow, children: Sequence[CheckpointRow]
) -> str:
    if any(each.unreadable for each in (row, parent, *children)):
        return "it, its parent or a child cannot be read: open the store with its own serializer"
    if not is_duration_only(image, row):
        return "it is not a duration-only checkpoint"
    if row.versions != parent.versions:
        return "its versions differ from its parent's: it has a state of its own"
    if not row.stored <= parent.stored:
        names = ", ".join(sorted(row.stored - parent.stored))
        return f"it stores values that its parent does not ({names})"
    if not children:
        return "it has no children: a leaf goes by the rule duration-leaves"
    return ""


def _in_use(image: ThreadImage, row: CheckpointRow, protected: frozenset[str]) -> str:
    if row.checkpoint_id in protected:
        return "it is protected"
    if image.heads[row.checkpoint_ns].key == row.key:
        return "it is the head of its namespace"
    for other in image.checkpoints:
        parents = other.metadata.get("parents")
        if isinstance(parents, Mapping) and row.checkpoint_id in parents.values():
            return f"the subgraph {other.checkpoint_ns!r} was called from it"
    return ""


def _unproven(
    image: ThreadImage, row: CheckpointRow, parent: CheckpointRow, children: Sequence[CheckpointRow]
) -> str:
    try:
        chain(image, *row.key)
    except LineageError as error:
        return f"its chain is damaged: {error}"
    if names := delta_writes(image, parent):
        return f"its parent owns writes ({', '.join(sorted(names))}) that only it has in its past"
    sends = any(
        write.channel == TASKS
        for key in (row.key, parent.key)
        for write in image.own_writes.get(key, ())
    )
    if sends and any(child.v < 4 for child in children):
        return "a child of an old format reads its pending sends from its parent"
    return ""


def _pending(image: ThreadImage, row: CheckpointRow, children: Sequence[CheckpointRow]) -> str:
    """Whether the link owns work that no child has taken in."""
    own = image.own_writes.get(row.key, ())
    finished = {write.task_id for write in own if _is_result(write)}
    for write in own:
        if write.task_id == NULL_TASK:
            left = write.idx >= 0 and any(
                child.versions.get(write.channel) == row.versions.get(write.channel)
                for child in children
            )
        else:
            left = write.idx < 0 and write.task_id not in finished
        if left:
            return f"it owns a pending write ({write.channel}) that a resume needs"
    return ""


def _is_result(write: WriteRow) -> bool:
    return write.idx >= 0 and write.task_id != NULL_TASK


# --- what becomes of the writes -----------------------------------------------------------------


def _handled(
    image: ThreadImage, row: CheckpointRow, parent: CheckpointRow, children: Sequence[CheckpointRow]
) -> Graft | str:
    names = tuple(child.checkpoint_id for child in children)
    written = delta_writes(image, row)
    needed = tuple(sorted(x for x in written if not all(x in child.stored for child in children)))
    made = Graft(row.checkpoint_ns, row.checkpoint_id, parent.checkpoint_id, names)
    if not needed:
        return made
    own = image.own_writes[row.key]
    alone = image.children[parent.key] == (row,) and not image.own_writes.get(parent.key)
    # A command's writes would be applied anew by whoever resumes at the parent, so they stay put.
    if alone and all(_is_result(write) for write in own):
        return Graft(*_parts(made), "move", needed)
    for child in children:
        for channel in needed:
            if channel not in child.stored and (why := _unstorable(image, child, channel)):
                return why
    return Graft(*_parts(made), "snapshot", needed)


def _parts(graft: Graft) -> tuple[str, str, str, tuple[str, ...]]:
    return graft.checkpoint_ns, graft.link_id, graft.parent_id, graft.children


def _unstorable(image: ThreadImage, child: CheckpointRow, channel: str) -> str:
    """Why a snapshot cannot stand at the child's version, which other checkpoints may share."""
    version = child.versions.get(channel)
    if version is None or channel in child.nulls:
        return f"its child {child.checkpoint_id} can hold no value of {channel!r}"
    for other in image.spaces[child.checkpoint_ns].values():
        if other.versions.get(channel) != version:
            continue
        writes = image.own_writes.get(other.key, ())
        heirs = image.children.get(other.key, ())
        if any(write.channel == channel for write in writes) and any(
            heir.versions.get(channel) == version for heir in heirs
        ):
            # A copy made while work was parked shows that work at an unchanged version.
            return f"a copy of checkpoint {other.checkpoint_id} shows other values of {channel!r}"
    return ""


def _store(txn: ThreadTxn, graft: Graft, values: Values) -> None:
    """Snapshots for the children, and their counters without the channels that have one now."""
    image = txn.image()
    for child, channels in wanted_values(image, graft).items():
        row = image.row(graft.checkpoint_ns, child)
        for channel in channels:
            value = values.get((child, channel))
            if value is None:
                raise GraftRefused(
                    f"thread {image.thread_id!r}, checkpoint {graft.link_id}: not grafted, "
                    f"the value of {channel!r} at {child} is needed: give the graph"
                )
            txn.store_value(graft.checkpoint_ns, child, channel, value)
        if row is not None and row.counted & set(channels):
            told = _uncounted(row.metadata, channels)
            txn.update_metadata(graft.checkpoint_ns, child, told)


def _uncounted(metadata: Mapping[str, object], channels: Sequence[str]) -> dict[str, object]:
    told = dict(metadata)
    for name in (COUNTERS, COUNTERS_OF_OLD):
        if isinstance(counters := told.pop(name, None), Mapping) and (
            left := {k: v for k, v in counters.items() if k not in channels}
        ):
            told[name] = left
    return told


def _sources(image: ThreadImage, row: CheckpointRow, channel: str) -> object:
    """What a channel of a checkpoint is read from: a stored version, or a seed and writes."""
    if channel in row.stored | row.nulls:
        return row.versions.get(channel)
    writes: list[tuple[object, ...]] = []
    for above in chain(image, *row.key)[1:]:
        own = [w for w in image.own_writes.get(above.key, ()) if w.channel == channel]
        writes += [(w.task_path, w.task_id, w.idx, w.bytes) for w in reversed(own)]
        if channel in above.stored:
            return above.versions.get(channel), writes
    return None, writes
