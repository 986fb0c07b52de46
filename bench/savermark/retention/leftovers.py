"""Rows that nothing refers to, found from the tables: what a prune left, or others before it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from savermark.retention.age import age_of
from savermark.retention.orphans import abandoned

if TYPE_CHECKING:
    from savermark.history.image import BlobKey, ThreadImage

RowKey = tuple[object, ...]
GRACE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The orphan rows of one table: `made` since the first reading, `left` from before it,
    `waiting`, whose checkpoint may not be committed yet, and `kept`, which were so before and stay
    because a policy keeps them (a head whose parent somebody deleted).
    """

    made: int = 0
    left: int = 0
    waiting: int = 0
    kept: int = 0


def leftovers(
    before: ThreadImage,
    after: ThreadImage,
    now: datetime,
    grace: timedelta = GRACE,
    kept: Collection[RowKey] = (),
) -> dict[str, Leftovers]:
    """The orphan rows of a thread now, by table and by where they come from.

    A row that was referred to before, or whose checkpoint was stored before, is made an orphan
    since. Any other is garbage once its checkpoint's id is older than the grace; a blob only where
    no checkpoint to come can name it (`orphans`). `kept` are
    checkpoints that a policy keeps on purpose.
    """
    stored = {row.checkpoint_id for row in before.checkpoints}
    blobs: set[RowKey] = {row.key for row in before.blobs}
    old = orphan_rows(before)
    new = orphan_rows(after)
    claimable = new["blobs"].keys() - abandoned(after, cast("Iterable[BlobKey]", new["blobs"]))
    found = {}
    for table, rows in new.items():
        made = left = waiting = stays = 0
        for key, owner in rows.items():
            known = key in blobs if table == "blobs" else owner in stored
            if table == "checkpoints" and key in kept and key in old[table]:
                stays += 1
                continue
            age = age_of(owner, now)
            if known and key not in old[table]:
                made += 1
            elif age is None or age <= grace or key in claimable:
                waiting += 1
            elif key in old[table]:
                left += 1
            else:
                made += 1
        found[table] = Leftovers(made, left, waiting, stays)
    return found


def is_call(checkpoint_ns: str) -> bool:
    """Whether a namespace belongs to one call of a subgraph, so that no later turn reads it."""
    return ":" in checkpoint_ns


def orphan_rows(image: ThreadImage) -> dict[str, dict[RowKey, str]]:
    """The rows of a thread that nothing refers to, by table; each with the id that tells its age.

    Checkpoints: those that name a parent which is not stored, and per-call subgraph namespaces
    whose root checkpoint is gone. Writes: those whose checkpoint is gone. Blobs: those that no
    checkpoint of the namespace names; their age is that of the thread's newest checkpoint, after
    which the one that would name them may still come.
    """
    newest = max((row.checkpoint_id for row in image.checkpoints), default="")
    roots = image.spaces.get("", {})
    checkpoints: dict[RowKey, str] = {}
    named = set[tuple[str, str, str]]()
    for row in image.checkpoints:
        named |= {(row.checkpoint_ns, *pair) for pair in row.versions.items()}
        parents = row.metadata.get("parents")
        root = parents.get("") if isinstance(parents, Mapping) else None
        dead = is_call(row.checkpoint_ns) and isinstance(root, str) and root not in roots
        parent = row.parent_id
        dangling = parent is not None and image.row(row.checkpoint_ns, parent) is None
        if dead or dangling:
            checkpoints[row.key] = (root or "") if dead else (parent or "")
    writes: dict[RowKey, str] = {
        write.key: write.checkpoint_id
        for write in image.writes
        if image.row(write.checkpoint_ns, write.checkpoint_id) is None
    }
    blobs: dict[RowKey, str] = {blob.key: newest for blob in image.blobs if blob.key not in named}
    return {"checkpoints": checkpoints, "writes": writes, "blobs": blobs}
