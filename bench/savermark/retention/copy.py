"""Copy a thread: all of it, its latest state, or its last turns, under an unused id.

Checkpoint ids, parents, namespaces, writes with their task paths, values and metadata stay as they
are; only the thread id changes. What a partial copy takes is what the retention planner would keep
(`keep-latest`, `keep-turns`), so that everything addressable in the copy reads back as in the
source; the oldest rows of a copy have no parent. With a graph the latest state is folded: the copy
stores the values of the delta channels and needs no ancestors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from savermark.errors import ContractError, UsageError
from savermark.history.arows import arow_access
from savermark.history.rows import row_access, target_in_use
from savermark.retention.plan import plan_thread
from savermark.retention.policy import RetentionPolicy
from savermark.storage import TABLES, Table

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.history.image import CheckpointKey, ThreadImage
    from savermark.history.rows import RowAccess
    from savermark.retention.exhaustive import Protect


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied, or would be in a dry run: rows and bytes as serialized, by table."""

    source: str
    target: str
    what: str
    rows: Mapping[Table, int] = field(default_factory=dict)
    logical_bytes: Mapping[Table, int] = field(default_factory=dict)
    dry_run: bool = False

    def __str__(self) -> str:
        """One line for a person."""
        verb = "would be copied" if self.dry_run else "copied"
        counts = ", ".join(f"{self.rows[table]} {table}" for table in TABLES)
        return f"{self.what} of thread {self.source!r} {verb} to {self.target!r}: {counts}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which checkpoints a copy takes: all, the latest state, or the `last` turns."""

    latest: bool = False
    last: int | None = None

    def __post_init__(self) -> None:
        if self.latest and self.last is not None:
            raise UsageError("copy either the latest state or the last turns, not both")
        if self.last is not None and self.last < 1:
            raise UsageError(f"last={self.last}: the number of turns must be 1 or more")

    def __str__(self) -> str:
        """What is copied, in words."""
        if self.latest:
            return "the latest state"
        return "everything" if self.last is None else f"the last {self.last} turns"

    @property
    def policy(self) -> RetentionPolicy | None:
        """The policy that keeps what is copied, None for everything."""
        if self.latest:
            return RetentionPolicy(keep_latest=True)
        return None if self.last is None else RetentionPolicy(keep_turns=self.last)


def chosen(
    image: ThreadImage, selection: Selection, protect: Protect = ()
) -> frozenset[CheckpointKey] | None:
    """The checkpoints that the copy takes, None for all rows; pure.

    Raises `UsageError` for a thread without checkpoints, `ContractError` where it cannot be told
    what a part of the thread is rebuilt from.
    """
    if not image.checkpoints:
        raise UsageError(f"thread {image.thread_id!r} holds no checkpoints: name one that does")
    if selection.policy is None:
        return None
    plan = plan_thread(image, selection.policy, protect=protect)
    if plan.refused:
        raise ContractError(
            f"thread {image.thread_id!r}: {plan.refused}; a copy of everything is possible"
        )
    return frozenset(row.key for row in image.checkpoints) - plan.checkpoints


def copy_rows(
    rows: RowAccess,
    source: str | int,
    target: str | int,
    selection: Selection | None = None,
    *,
    protect: Protect = (),
    dry_run: bool = False,
) -> Copied:
    """`copy_thread` on rows."""
    here, there = _ids(source, target)
    selection = selection or Selection()
    if dry_run:
        image = rows.image(here)
        keys = chosen(image, selection, protect)
        if rows.image(there).rows:
            raise target_in_use(there)
        return _copied(image, there, selection, keys, dry_run=True)
    with rows.transaction(here) as txn:
        image = txn.image()
        keys = chosen(image, selection, protect)
        txn.copy_rows(there, keys)
    return _copied(image, there, selection, keys)


def _copied(
    image: ThreadImage,
    target: str,
    selection: Selection,
    keys: frozenset[CheckpointKey] | None,
    *,
    dry_run: bool = False,
) -> Copied:
    part = image if keys is None else image.cut(keys)
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
    protect: Protect = (),
    dry_run: bool = False,
) -> Copied:
    """Copy a thread of a sync saver under an unused id, in one transaction.

    `latest` takes the newest state of each namespace that is still needed, with pending writes and
    what it is rebuilt from; `last` that many turns; `protect` names checkpoints that such a part
    contains as well. Raises `UsageError` for a source without checkpoints, a target that holds
    rows, or both parts at once; `ContractError` for a part of a damaged thread; `Unsupported` for
    a saver whose rows are not known.
    """
    selection = Selection(latest, last)
    rows = row_access(saver)
    return copy_rows(rows, source, target, selection, protect=protect, dry_run=dry_run)


async def acopy_thread(
    saver: BaseCheckpointSaver[Any],
    source: str | int,
    target: str | int,
    *,
    latest: bool = False,
    last: int | None = None,
    protect: Protect = (),
    dry_run: bool = False,
) -> Copied:
    """The async twin of `copy_thread`, for sync savers too."""
    selection = Selection(latest, last)
    async with arow_access(saver) as access:
        return await access.run(
            lambda rows: copy_rows(
                rows, source, target, selection, protect=protect, dry_run=dry_run
            )
        )
