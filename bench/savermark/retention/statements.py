"""A plan as statements of an open transaction: what is deleted, and what is stored instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savermark.retention.fold import without_counts

if TYPE_CHECKING:
    from savermark.history.image import ThreadImage
    from savermark.history.rows import ThreadTxn
    from savermark.retention.fold import Values
    from savermark.retention.records import Fold, ThreadPlan
    from savermark.storage import Table


def execute(
    txn: ThreadTxn, plan: ThreadPlan, image: ThreadImage, values: Values
) -> dict[Table, int]:
    """The statements of a plan, in an order that leaves nothing dangling between them."""
    if plan.whole:
        return txn.delete_all()
    for fold in plan.folds:
        store_fold(txn, fold, image, values)
    for graft in plan.grafts:  # in this order: one may build on the one before
        if graft.handling == "move":
            txn.move_writes(graft.checkpoint_ns, graft.link_id, graft.parent_id)
        for child in graft.children:
            txn.reparent(graft.checkpoint_ns, child, graft.parent_id)
    for space, name in sorted(plan.detached):
        txn.reparent(space, name, None)
    writes = txn.delete_writes_of(plan.checkpoints)
    writes += txn.delete_writes(key for key in plan.writes if key[:2] not in plan.checkpoints)
    return {
        "checkpoints": txn.delete_checkpoints(plan.checkpoints),
        "blobs": txn.delete_blobs(plan.blobs),
        "writes": writes,
    }


def store_fold(txn: ThreadTxn, fold: Fold, image: ThreadImage, values: Values) -> None:
    """Store the values of one checkpoint onto it; from here on they are counted anew."""
    space, name = fold.checkpoint_ns, fold.checkpoint_id
    stored = [channel for channel in fold.channels if (space, name, channel) in values]
    for channel in stored:
        txn.store_value(space, name, channel, values[space, name, channel])
    row = image.row(space, name)
    if stored and row is not None:
        txn.update_metadata(space, name, without_counts(row, stored))
