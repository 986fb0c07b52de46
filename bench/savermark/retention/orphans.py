"""Rows that belong to no checkpoint, found from the tables and not from what was deleted.

A write row may be stored before its checkpoint is, so one whose checkpoint is absent is garbage
only when that checkpoint's id is older than a grace.

A blob row carries no time. One that no surviving checkpoint names goes when a checkpoint that goes
named it: a version is made for one value, so nobody else can come to name it. One that no
checkpoint names at all may belong to one that is about to be stored. It goes only when its version
counts no higher than the highest that its namespace names for any channel (the next checkpoint of a
line moves higher), and the newest id of the thread is older than the grace, so that no run is at
work on it. What cannot be told stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from savermark.retention.age import age_of

if TYPE_CHECKING:
    from savermark.history.lineage import (
        BlobKey,
        CheckpointKey,
        CheckpointRow,
        ThreadImage,
        WriteKey,
    )
    from savermark.retention.keep import Terms


def dead_writes(
    image: ThreadImage, gone: Collection[CheckpointKey], terms: Terms
) -> frozenset[WriteKey]:
    """The writes of the checkpoints that go, and those whose checkpoint has long been missing."""
    stored = {row.key for row in image.checkpoints}
    return frozenset(
        write.key
        for key, owned in image.own_writes.items()
        if key in gone or (key not in stored and terms.is_older(key[1], terms.grace))
        for write in owned
    )


def dead_blobs(
    image: ThreadImage, gone: Collection[CheckpointKey], terms: Terms
) -> frozenset[BlobKey]:
    """The blobs that no survivor names and no checkpoint on its way can come to name."""
    left = named_blobs(row for row in image.checkpoints if row.key not in gone)
    dropped = named_blobs(row for row in image.checkpoints if row.key in gone) - left
    unknown = {blob.key for blob in image.blobs} - left - dropped
    lost = abandoned(image, unknown) if unknown and is_quiet(image, terms) else set()
    return frozenset(blob.key for blob in image.blobs if blob.key in dropped or blob.key in lost)


def named_blobs(rows: Iterable[CheckpointRow]) -> set[BlobKey]:
    """The blob keys that the versions of these checkpoints name."""
    return {(row.checkpoint_ns, *pair) for row in rows for pair in row.versions.items()}


def is_quiet(image: ThreadImage, terms: Terms) -> bool:
    """Whether no id of the thread is, or may be, as young as the grace; False where none tells."""
    ids = named_ids(image)
    return bool(ids) and all(terms.is_older(name, terms.grace) for name in ids)


def named_ids(image: ThreadImage) -> frozenset[str]:
    """Every checkpoint id that the thread's rows name, absent ones included."""
    return frozenset(
        {row.checkpoint_id for row in image.checkpoints}
        | {write.checkpoint_id for write in image.writes}
    )


def is_idle(image: ThreadImage, terms: Terms) -> bool:
    """Whether every id of the thread is known to be older than `idle-threads` says."""
    age, ids = terms.policy.idle_threads, named_ids(image)
    if age is None or not ids:
        return False
    ages = [age_of(name, terms.now) for name in ids]
    return all(found is not None and found > age for found in ages)


def abandoned(image: ThreadImage, keys: Iterable[BlobKey]) -> set[BlobKey]:
    """Those of a quiet thread's unnamed blobs that no checkpoint to come can name."""
    highest = _highest(image.spaces)
    return {
        key
        for key in keys
        if (count := counter(key[2])) is not None and count <= highest.get(key[0], count)
    }


def _highest(spaces: Mapping[str, Mapping[str, CheckpointRow]]) -> dict[str, int]:
    """The highest counter that each namespace names."""
    found = {}
    for space, rows in spaces.items():
        versions = {version for row in rows.values() for version in row.versions.values()}
        counts = [counter(version) for version in versions]
        found[space] = max((count for count in counts if count is not None), default=-1)
    return found


def counter(version: str) -> int | None:
    """The counter in a version (`00…07.0123…`, or a plain number); None for another form."""
    head = version.partition(".")[0]
    return int(head) if head.isdecimal() else None
