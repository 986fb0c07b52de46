"""What deleting runs may take: what they stored, and nothing that another run is rebuilt from.

A checkpoint belongs to a run when its metadata names it. It goes unless it is in the keep-set of
one that must stay addressable. Those are, by default, all checkpoints of other runs: in a thread
with delta channels the next run is mostly rebuilt from this one, so that little goes, and older
turns can still be branched from. With `heads` only the tips that are left and what is protected
stay addressable; checkpoints of other runs that no longer read back right are counted as `cut`.

A run also stores writes on the checkpoint it started from. They go with the run when every child
of that checkpoint goes, for a resume would apply them; what an earlier run left pending there
(interrupts, errors, finished tasks beside them) stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from savermark.errors import UsageError
from savermark.history.image import run_of
from savermark.history.lineage import KeepSet, LineageError, keep_all, missing_values
from savermark.retention.damage import damages
from savermark.retention.exhaustive import Protect, protected_ids
from savermark.retention.plan import freed_by
from savermark.retention.records import ThreadPlan

if TYPE_CHECKING:
    from savermark.history.image import BlobKey, CheckpointKey, CheckpointRow, ThreadImage, WriteRow

Addressable = Literal["every", "heads"]

# Damage of a thread that leaves open what its checkpoints are rebuilt from. A broken chain refuses
# where the rebuild of a checkpoint that stays crosses the gap; the rest is not touched by deletion.
_UNSAFE = frozenset({"unreadable", "cycle", "parent-above-child", "equal-versions"})
_STOPS = ("__interrupt__", "__error__")  # what a task leaves behind that did not finish
_RESUME = "__resume__"


@dataclass(frozen=True, slots=True)
class RunsPlan:
    """What deleting runs does to one thread: `matched` checkpoints, of which `needed` stay.

    `cut` checkpoints of other runs would no longer read back right.
    """

    plan: ThreadPlan
    matched: int = 0
    needed: int = 0
    cut: int = 0


def plan_runs(
    image: ThreadImage,
    run_ids: Collection[str],
    *,
    protect: Protect = (),
    addressable: Addressable = "every",
) -> RunsPlan:
    """What deleting these runs does to one thread; pure. `protect` are ids of any namespace."""
    names = check_runs(run_ids)
    matched = {row.key for row in image.checkpoints if run_of(row.metadata) in names}
    if not matched:
        return RunsPlan(ThreadPlan(image.thread_id))
    unsafe = next((str(each) for each in damages(image) if each.kind in _UNSAFE), "")
    if unsafe:
        return RunsPlan(ThreadPlan(image.thread_id, refused=unsafe), len(matched))
    try:
        kept = _kept(image, matched, protected_ids(protect), addressable)
        gone = frozenset(key for key in matched if key[1] not in kept.get(key[0], ()))
        cut = 0 if addressable == "every" else _cut(image, matched, gone)
    except LineageError as error:
        return RunsPlan(ThreadPlan(image.thread_id, refused=str(error)), len(matched))
    return RunsPlan(_plan(image, gone, kept), len(matched), len(matched) - len(gone), cut)


def _cut(
    image: ThreadImage, matched: Collection[CheckpointKey], gone: Collection[CheckpointKey]
) -> int:
    """The checkpoints of other runs whose rebuild crosses one that goes; each link walked once.

    A channel that the metadata does not count is taken for a delta channel if it is counted or
    snapshotted anywhere in the namespace, or nothing is.
    """
    count = 0
    for space, rows in image.spaces.items():
        delta = frozenset[str]().union(*(row.counted | row.snapshots for row in rows.values()))
        lost = {name for at, name in gone if at == space}
        known: dict[tuple[str, frozenset[str]], bool] = {}
        for row in rows.values():
            if row.key not in matched:
                certain, doubtful = missing_values(row)
                sought = frozenset(certain | (doubtful & delta if delta else doubtful))
                count += _crosses(rows, row, sought, lost, known)
    return count


def _crosses(
    rows: Mapping[str, CheckpointRow],
    row: CheckpointRow,
    sought: frozenset[str],
    lost: Collection[str],
    known: dict[tuple[str, frozenset[str]], bool],
) -> bool:
    """Whether the walk for these channels above a row meets a lost one; `known` answers are kept
    by row and what is sought above it.
    """
    path, crosses = [], False
    while sought and row.parent_id is not None and row.parent_id in rows:
        key = (row.checkpoint_id, sought)
        if key in known:
            crosses = known[key]
            break
        path.append(key)
        row = rows[row.parent_id]
        if row.checkpoint_id in lost:
            crosses = True
            break
        sought -= row.stored
    known.update(dict.fromkeys(path, crosses))
    return crosses


def _kept(
    image: ThreadImage,
    matched: Collection[CheckpointKey],
    protect: frozenset[str],
    addressable: Addressable,
) -> dict[str, KeepSet]:
    """What stays addressable, with what it is rebuilt from, by namespace."""
    targets: dict[str, set[str]] = {space: set() for space in image.spaces}
    for row in image.checkpoints:
        tip = addressable == "every" or all(
            child.key in matched for child in image.children.get(row.key, ())
        )
        if (tip and row.key not in matched) or row.checkpoint_id in protect:
            targets[row.checkpoint_ns].add(row.checkpoint_id)
    for space, rows in image.spaces.items():
        if space and ":" not in space:  # persistent: a replay of a root loads the newest before it
            for root in targets.get("", ()):
                older = [name for name in rows if name < root]
                targets[space].update(older[-1:])
    return {space: keep_all(image, space, names) for space, names in targets.items() if names}


def _plan(
    image: ThreadImage, gone: frozenset[CheckpointKey], kept: dict[str, KeepSet]
) -> ThreadPlan:
    left = [row for row in image.checkpoints if row.key not in gone]
    named = {(row.checkpoint_ns, *pair) for row in left for pair in row.versions.items()}
    lost: set[BlobKey] = {
        (row.checkpoint_ns, *pair)
        for row in image.checkpoints
        if row.key in gone
        for pair in row.versions.items()
    }
    writes = [row for row in image.writes if row.key[:2] in gone]
    writes += [
        write
        for row in left
        if (children := image.children.get(row.key))
        and all(child.key in gone for child in children)
        for write in _of_the_run(image.own_writes.get(row.key, ()))
    ]
    blobs = [row for row in image.blobs if row.key in lost and row.key not in named]
    plan = ThreadPlan(
        image.thread_id,
        checkpoints=gone,
        writes=frozenset(row.key for row in writes),
        blobs=frozenset(row.key for row in blobs),
        detached=frozenset(
            row.key
            for row in left
            if row.parent_id is not None and (row.checkpoint_ns, row.parent_id) in gone
        ),
        kept=kept,
    )
    return replace(plan, freed=freed_by(plan, image))


def _of_the_run(writes: Sequence[WriteRow]) -> list[WriteRow]:
    """The writes on a checkpoint that a later run, whose checkpoints all go, stored there.

    Where no task had stopped, all are. Where one had, the run resumed it: its resume values and
    the output of the stopped tasks are the run's, everything else may have been there before.
    """
    stopped = {row.task_id for row in writes if row.channel in _STOPS}
    if not stopped:
        return list(writes)
    return [
        row
        for row in writes
        if row.channel == _RESUME or (row.task_id in stopped and row.channel not in _STOPS)
    ]


def check_runs(run_ids: Collection[str]) -> frozenset[str]:
    """The run ids as text. Raises `UsageError` for a bare string or an empty id."""
    if isinstance(run_ids, str):
        raise UsageError(f"run ids must be a list, not the text {run_ids!r}: give [{run_ids!r}]")
    names = frozenset(str(name) for name in run_ids)
    if "" in names:
        raise UsageError("an empty run id names no run: leave it out")
    return names
