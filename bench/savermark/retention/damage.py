"""The unsafe forms of a thread: what makes its rows read back wrong, or reads of it ambiguous.

Retention refuses a thread that has one, and `savermark db doctor` names each. Nothing is repaired:
which of the possible truths was meant is not on disk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from savermark.history.image import NOTHING, CheckpointRow, ThreadImage
from savermark.history.lineage import missing_values

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal[
    "broken-chain",
    "cycle",
    "parent-above-child",
    "shared-base",
    "missing-snapshot",
    "equal-versions",
    "unreadable",
]


@dataclass(frozen=True, slots=True)
class Damage:
    """One unsafe form: where it is, `what` it is, what it `breaks` and the `fix`, one line each."""

    kind: Kind
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    what: str
    breaks: str
    fix: str

    def __str__(self) -> str:
        """The reason for which a thread is refused."""
        where = f"namespace {self.checkpoint_ns!r}: " if self.checkpoint_ns else ""
        return f"{self.kind}: {where}checkpoint {self.checkpoint_id} {self.what}: {self.fix}"


def damages(image: ThreadImage) -> Iterator[Damage]:
    """Every unsafe form that the rows of a thread show without their values, by namespace.

    Two checkpoints of SQLite that store different values under one version do not show here: there
    is no row that both share. Writes and blobs that nobody names harm nobody and are no damage.
    """
    for space, rows in image.spaces.items():
        yield from _unreadable(image, rows)
        yield from _links(image, space, rows)
        yield from _shared_bases(image, space, rows)
        yield from _missing_snapshots(image, space, rows)
        yield from _equal_versions(image, space, rows)


def _unreadable(image: ThreadImage, rows: Mapping[str, CheckpointRow]) -> Iterator[Damage]:
    for row in rows.values():
        if row.unreadable:
            yield Damage(
                "unreadable",
                image.thread_id,
                *row.key,
                f"is stored as {row.unreadable!r}, which cannot be read here",
                "what it needs of its ancestors is unknown, so nothing of the thread can be judged",
                "open the database through the serializer that wrote it, or leave the thread",
            )


def _links(image: ThreadImage, space: str, rows: Mapping[str, CheckpointRow]) -> Iterator[Damage]:
    """Parents that are not stored, circles, and parents whose id sorts above the child's."""
    inside = set[str]()
    for circle in _circles(rows):
        inside |= circle
        yield Damage(
            "cycle",
            image.thread_id,
            space,
            max(circle),
            f"is its own ancestor, through {len(circle)} checkpoint{'s' * (len(circle) > 1)}",
            "a walk of its history never ends on some savers and stops anywhere on others",
            "give one checkpoint of the circle its right parent, or delete the thread",
        )
    for row in rows.values():
        if row.parent_id is None or row.checkpoint_id in inside:
            continue
        if row.parent_id not in rows:
            yield _broken(image, row)
        elif row.parent_id > row.checkpoint_id:
            yield Damage(
                "parent-above-child",
                image.thread_id,
                *row.key,
                f"has a parent whose id sorts above its own, {row.parent_id}",
                "the older one is taken for the latest, and a walk by id order loses the history",
                "read it by explicit ids and write its state to a new thread; check the clocks",
            )


def _broken(image: ThreadImage, row: CheckpointRow) -> Damage:
    lost = sorted(missing_values(row)[0])
    return Damage(
        "broken-chain",
        image.thread_id,
        *row.key,
        f"names parent {row.parent_id}, which is not stored",
        f"what {', '.join(lost)} held before reads back as nothing, without an error"
        if lost
        else "history ends here, and branches from before are gone",
        "restore the missing rows from a backup, or delete the thread",
    )


def _circles(rows: Mapping[str, CheckpointRow]) -> Iterator[frozenset[str]]:
    """The circles among the parent links, each once; every link is followed once."""
    done = set[str]()
    for start in rows:
        trail: dict[str, None] = {}
        at: str | None = start
        while at is not None and at in rows and at not in done and at not in trail:
            trail[at] = None
            at = rows[at].parent_id
        if at is not None and at in trail:
            names = list(trail)
            yield frozenset(names[names.index(at) :])
        done.update(trail)


def _shared_bases(
    image: ThreadImage, space: str, rows: Mapping[str, CheckpointRow]
) -> Iterator[Damage]:
    """Writes of a delta channel that several children replay, though only one was made of them.

    Children at one version of the channel are copies of one another and replay rightly.
    """
    for base in rows.values():
        children = image.children.get(base.key, ())
        if len(children) < 2 or base.key not in image.own_writes:
            continue
        written = {write.channel for write in image.own_writes[base.key]}
        mixed = sorted(_replayed(children, written))
        if mixed:
            yield Damage(
                "shared-base",
                image.thread_id,
                *base.key,
                f"has several children that replay its writes to {', '.join(mixed)}",
                "each branch reads the other's writes as well; which were its own is not stored",
                "trust neither branch: continue from a checkpoint before it, or delete the thread",
            )


def _replayed(children: Iterable[CheckpointRow], written: set[str]) -> Iterator[str]:
    """The written channels that children at different versions rebuild."""
    versions: dict[str, set[str]] = defaultdict(set)
    for child in children:
        certain, doubtful = missing_values(child)
        for channel in written & (certain | doubtful):
            versions[channel].add(child.versions[channel])
    return (channel for channel, found in versions.items() if len(found) > 1)


def _missing_snapshots(
    image: ThreadImage, space: str, rows: Mapping[str, CheckpointRow]
) -> Iterator[Damage]:
    """Marks of a snapshot without the snapshot, and versions that lost their blob (memory).

    The mark looks like a plain True: it counts where the channel is known to be a delta channel.
    """
    delta = NOTHING.union(*(row.counted | row.snapshots for row in rows.values()))
    blobs = {blob.key for blob in image.blobs}
    # Only the memory saver stores a row for a channel without a value; it does so for every one.
    complete = any(blob.type == "empty" for blob in image.blobs)
    for row in rows.values():
        lost = (row.markers - row.snapshots) & delta
        if complete:
            lost |= {c for c, v in row.versions.items() if (space, c, v) not in blobs}
        if lost:
            yield Damage(
                "missing-snapshot",
                image.thread_id,
                *row.key,
                f"has lost the stored value of {', '.join(sorted(lost))}",
                "it and what was built on it read back without everything before",
                "restore the blob rows from a backup, or continue from an earlier checkpoint",
            )


def _equal_versions(
    image: ThreadImage, space: str, rows: Mapping[str, CheckpointRow]
) -> Iterator[Damage]:
    """One stored value that several branches moved to by themselves, each with its own value.

    Versions have a random part; a saver that counts them plainly gives two branches the same. What
    a root moved is unknown: retention makes roots of what once had a common ancestor.
    """
    filled = {blob.key for blob in image.blobs if blob.type != "empty"}
    if not filled:
        return
    makers: dict[tuple[str, str], list[CheckpointRow]] = defaultdict(list)
    for row in rows.values():
        parent = rows.get(row.parent_id) if row.parent_id is not None else None
        if parent is None:
            continue
        for channel, version in row.versions.items():
            if parent.versions.get(channel) != version and (space, channel, version) in filled:
                makers[channel, version].append(row)
    told = set[str]()
    for (channel, version), found in makers.items():
        first, *others = found
        if all(_copies(first, other) for other in others) or first.checkpoint_id in told:
            continue
        told.add(first.checkpoint_id)
        yield Damage(
            "equal-versions",
            image.thread_id,
            *first.key,
            f"and {others[-1].checkpoint_id} moved {channel!r} to one version, {version}",
            "both read the one value that is stored, so one of the branches reads the other's",
            "trust neither branch: continue from a checkpoint before them, or delete the thread",
        )


def _copies(one: CheckpointRow, other: CheckpointRow) -> bool:
    """Whether one is a copy of the other (`update_state` as `__copy__`)."""
    return one.versions == other.versions and "fork" in (
        one.metadata.get("source"),
        other.metadata.get("source"),
    )
