"""A thread that a run wrote to while it was verified: what can still be said of it.

What the run added (pending writes, a later checkpoint) makes the thread read back different, and is
not retention's doing. Where every row that the plan keeps is still there as it was, nothing that it
kept can read back worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from savermark.retention.verify import Check, Verification

if TYPE_CHECKING:
    from savermark.history.image import ThreadImage
    from savermark.history.rows import RowAccess
    from savermark.retention.records import Applied, ThreadPlan


# By thread: its image from before it was changed, and what was done.
Touched = Mapping[str, tuple["ThreadImage", "Applied"]]


def beside_runs(rows: RowAccess, found: Verification, touched: Touched) -> Verification:
    """The checks, those that did not pass judged by the rows where a run wrote meanwhile."""
    judged: dict[str, Check | None] = {}
    for name in {check.thread_id for check in found.failures}:
        before, applied = touched[name]
        after = rows.image(name)
        if not grew(before, after):
            continue
        if unharmed(before, after, applied.plan):
            detail = "a run wrote meanwhile; every row that was to stay is as it was"
            judged[name] = Check(name, "", "ok", detail)
        else:
            judged[name] = Check(name, "", "unproven", "a run wrote meanwhile")
    return Verification(tuple(_with(check, judged.get(check.thread_id)) for check in found.checks))


def grew(before: ThreadImage, after: ThreadImage) -> bool:
    """Whether somebody added a checkpoint or a write."""
    old = {row.key for row in before.checkpoints}
    own = {row.key[2:] for row in before.writes}  # a graft moves writes, and makes none
    return any(row.key not in old for row in after.checkpoints) or any(
        row.key[2:] not in own for row in after.writes
    )


def unharmed(before: ThreadImage, after: ThreadImage, plan: ThreadPlan) -> bool:
    """Whether every row that the plan does not delete is there as it was, and none that it does.

    False where the plan rewrites rows, of which rows alone do not tell whether it was right.
    """
    if plan.folds or plan.grafts:
        return False
    if plan.whole:
        return not {row.key for row in before.checkpoints} & {row.key for row in after.checkpoints}
    checkpoints = (
        replace(row, parent_id=None) if row.key in plan.detached else row
        for row in before.checkpoints
        if row.key not in plan.checkpoints
    )
    writes = {row for row in before.writes if row.key not in plan.writes}
    blobs = {row for row in before.blobs if row.key not in plan.blobs}
    left = {row.key: row for row in after.checkpoints}
    return (
        all(left.get(row.key) == row for row in checkpoints)
        and writes <= set(after.writes)
        and blobs <= set(after.blobs)
        and not plan.checkpoints & left.keys()
    )


def _with(check: Check, judged: Check | None) -> Check:
    if judged is None or check.ok:
        return check
    return replace(check, verdict=judged.verdict, detail=f"{check.detail} ({judged.detail})")
