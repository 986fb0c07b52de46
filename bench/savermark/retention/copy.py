"""Copy a thread: all of it, its latest state, or its last turns, under an unused id.

Checkpoint ids, parents, namespaces, writes with their task paths, values and metadata stay as they
are; only the thread id changes. What a partial copy takes is what the retention planner would keep
(`keep-latest`, `keep-turns`), so that everything addressable in the copy reads back as in the
source; the oldest rows of a copy have no parent. With `fold` the latest state is compacted on the
way: the copy stores the values of the delta channels and needs no ancestors. The source is never
changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from savermark.errors import ContractError, UsageError
from savermark.history.arows import arow_access
from savermark.history.rows import ThreadBusy, row_access, target_in_use
from savermark.retention.fold import check_versions, evidence
from savermark.retention.plan import plan_thread
from savermark.retention.policy import RetentionPolicy
from savermark.retention.records import ThreadPlan
from savermark.retention.settle import NOTHING, Ready
from savermark.retention.statements import store_fold
from savermark.storage import TABLES, Table

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.history.image import CheckpointKey, ThreadImage
    from savermark.history.rows import RowAccess
    from savermark.retention.exhaustive import Protect
    from savermark.retention.fold import Materializer


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied, or would be in a dry run: rows and bytes as serialized, by table."""

    source: str
    target: str
    what: str
    rows: Mapping[Table, int] = field(default_factory=dict)
    logical_bytes: Mapping[Table, int] = field(default_factory=dict)
    folded: tuple[str, ...] = ()  # channels whose values the copy stores itself
    dry_run: bool = False

    def __str__(self) -> str:
        """One line for a person."""
        verb = "would be copied" if self.dry_run else "copied"
        counts = ", ".join(f"{self.rows[table]} {table}" for table in TABLES)
        return f"{self.what} of thread {self.source!r} {verb} to {self.target!r}: {counts}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which checkpoints a copy takes: all, the latest state (perhaps folded), or `last` turns.

    Raises `UsageError` for two of these at once, and for fewer turns than one.
    """

    latest: bool = False
    last: int | None = None
    folded: bool = False
    protect: Protect = ()

    def __post_init__(self) -> None:
        if self.latest and self.last is not None:
            raise UsageError("copy either the latest state or the last turns, not both")
        if self.folded and not self.latest:
            raise UsageError("only the latest state can be folded: add --latest, or give no graph")
        if self.last is not None and self.last < 1:
            raise UsageError(f"last={self.last}: the number of turns must be 1 or more")

    def __str__(self) -> str:
        """What is copied, in words."""
        if self.latest:
            return "the latest state, folded," if self.folded else "the latest state"
        return "everything" if self.last is None else f"the last {self.last} turns"

    @property
    def policy(self) -> RetentionPolicy | None:
        """The policy that keeps what is copied, None for everything."""
        if self.latest:
            return RetentionPolicy(keep_latest=True, delta="compact" if self.folded else "walk")
        return None if self.last is None else RetentionPolicy(keep_turns=self.last)


def plan_copy(image: ThreadImage, selection: Selection) -> ThreadPlan:
    """What the copy leaves out, and what is folded in it; pure.

    Raises `UsageError` for a thread without checkpoints, `ContractError` where it cannot be told
    what a part of the thread is rebuilt from.
    """
    if not image.checkpoints:
        raise UsageError(f"thread {image.thread_id!r} holds no checkpoints: name one that does")
    if selection.policy is None:
        return ThreadPlan(image.thread_id)
    plan = plan_thread(image, selection.policy, protect=selection.protect)
    if plan.refused:
        raise ContractError(f"thread {image.thread_id!r}: {plan.refused}; or copy everything")
    return plan


def _chosen(image: ThreadImage, plan: ThreadPlan) -> frozenset[CheckpointKey]:
    return frozenset(row.key for row in image.checkpoints) - plan.checkpoints


def copy_rows(
    rows: RowAccess,
    source: str | int,
    target: str | int,
    selection: Selection | None = None,
    *,
    fold: Materializer | None = None,
    dry_run: bool = False,
) -> Copied:
    """`copy_thread` on rows; a folded selection needs `fold`."""
    here, there = _ids(source, target)
    chosen = selection or Selection()
    if dry_run:
        return _foreseen(rows, here, there, chosen)
    if not chosen.folded or fold is None:
        return _copy(rows, here, there, chosen)
    image = rows.image(here)
    folds = plan_copy(image, chosen).folds
    ready = Ready(fold.values(here, folds), evidence(image, folds))
    return _copy(rows, here, there, chosen, ready)


def _foreseen(rows: RowAccess, source: str, target: str, selection: Selection) -> Copied:
    image = rows.image(source)
    plan = plan_copy(image, selection)
    if rows.image(target).rows:
        raise target_in_use(target)
    return _copied(image, target, selection, plan, dry_run=True)


def _copy(
    rows: RowAccess, source: str, target: str, selection: Selection, ready: Ready = NOTHING
) -> Copied:
    """One transaction, planned inside it."""
    with rows.transaction(source) as txn:
        image = txn.image()
        plan = plan_copy(image, selection)
        if plan.folds and evidence(image, plan.folds) != ready.evidence:
            raise ThreadBusy(f"thread {source!r} changed while it was read: copy it again")
        check_versions(image, ready.values)
        whole = selection.policy is None
        txn.copy_rows(target, None if whole else _chosen(image, plan))
        for fold in plan.folds:
            store_fold(txn.beside(target), fold, image, ready.values)
        stored = txn.beside(target).image() if plan.folds else None
    return _copied(image, target, selection, plan, stored)


def _copied(
    image: ThreadImage,
    target: str,
    selection: Selection,
    plan: ThreadPlan,
    stored: ThreadImage | None = None,
    *,
    dry_run: bool = False,
) -> Copied:
    whole = selection.policy is None
    part = stored or (image if whole else image.cut(_chosen(image, plan)))
    tables: dict[Table, Any] = {
        "checkpoints": part.checkpoints,
        "blobs": part.blobs,
        "writes": part.writes,
    }
    return Copied(
        image.thread_id,
        target,
        str(selection),
        {table: len(found) for table, found in tables.items()},
        {table: sum(row.bytes for row in found) for table, found in tables.items()},
        tuple(sorted({channel for fold in plan.folds for channel in fold.channels})),
        dry_run,
    )


def _ids(source: str | int, target: str | int) -> tuple[str, str]:
    """Both ids as text: savers look a thread up by its text, whatever it was stored by."""
    here, there = str(source), str(target)
    for name, value in (("source", here), ("target", there)):
        if not value:
            raise UsageError(f"the {name} thread has an empty id: name a thread")
    if here == there:
        raise UsageError(f"thread {here!r} cannot be copied to itself: choose an unused id")
    return here, there


def copy_thread(
    saver: BaseCheckpointSaver[Any],
    source: str | int,
    target: str | int,
    *,
    latest: bool = False,
    last: int | None = None,
    fold: Materializer | None = None,
    protect: Protect = (),
    dry_run: bool = False,
) -> Copied:
    """Copy a thread of a sync saver under an unused id, in one transaction.

    `latest` takes the newest state of each namespace that is still needed, with pending writes and
    what it is rebuilt from, or with `fold` (`fold.graph_fold`) the values themselves; `last` that
    many turns; `protect` names checkpoints that such a part contains as well. In a dry run rows
    and bytes are those before folding. Raises `UsageError` for a source without checkpoints, a
    target that holds rows, or both parts at once; `ContractError` for a part of a damaged thread;
    `ThreadBusy` when a run got in between; `Unsupported` for a saver whose rows are not known.
    """
    selection = Selection(latest, last, fold is not None, protect)
    return copy_rows(row_access(saver), source, target, selection, fold=fold, dry_run=dry_run)


async def acopy_thread(
    saver: BaseCheckpointSaver[Any],
    source: str | int,
    target: str | int,
    *,
    latest: bool = False,
    last: int | None = None,
    fold: Materializer | None = None,
    protect: Protect = (),
    dry_run: bool = False,
) -> Copied:
    """The async twin of `copy_thread`, for sync savers too."""
    selection = Selection(latest, last, fold is not None, protect)
    here, there = _ids(source, target)
    async with arow_access(saver) as access:
        if dry_run:
            return await access.run(lambda rows: _foreseen(rows, here, there, selection))
        if fold is None:
            return await access.run(lambda rows: _copy(rows, here, there, selection))
        image = await access.run(methodcaller("image", here))
        folds = plan_copy(image, selection).folds
        ready = Ready(await fold.avalues(here, folds), evidence(image, folds))
        return await access.run(lambda rows: _copy(rows, here, there, selection, ready))
