"""What a policy would do to a thread: pure, from the thread's rows alone.

Thread rules come first (`delete`, `idle-threads`: the thread goes whole, damaged or not, unless it
holds a protected id). Then an unsafe thread is refused (`damage`). Then leaf rules name single
checkpoints, keep rules say what stays addressable (`keep`), and each of these gets its keep-set;
the rest goes. What else hangs on what went is found from all rows (`orphans`).

Of the unsafe forms, a broken chain refuses a thread only where a checkpoint that stays is rebuilt
across the gap; a shared base and a lost snapshot only where that checkpoint stays. Two checkpoints
of SQLite that store different values under one version cannot be told without the values.

The leaf rules want that no run is at work on the thread: one that has just read the leaf would
hang its next checkpoint under it. The keep rules never remove a head, nor what it is rebuilt from;
but `compact` puts the value there instead, and a run that has read the head before and asks for its
history afterwards finds none, unless its saver notices (`steady.with_steady`). `snapshot` only puts
it there: whoever has read the head before still finds the history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from savermark.errors import UsageError
from savermark.history.image import ThreadImage
from savermark.history.lineage import (
    CheckpointKey,
    KeepSet,
    LineageError,
    is_reserved,
    keep_all,
)
from savermark.history.rows import BATCH
from savermark.retention.compaction import folded, folds_of
from savermark.retention.damage import damages
from savermark.retention.exhaustive import Protect, leaf_candidates, protected_ids
from savermark.retention.keep import GRACE, Terms, addressable
from savermark.retention.orphans import dead_blobs, dead_writes, is_idle
from savermark.retention.records import Fold, Freed, Graft, ThreadPlan
from savermark.retention.relink import relink

if TYPE_CHECKING:
    from savermark.history.rows import RowAccess
    from savermark.retention.damage import Damage
    from savermark.retention.policy import RetentionPolicy
    from savermark.storage import Table

# Unsafe only where a checkpoint that stays has it, or (the chain) is rebuilt across it.
_WHERE_KEPT = frozenset({"broken-chain", "shared-base", "missing-snapshot"})


def plan_thread(
    image: ThreadImage,
    policy: RetentionPolicy,
    *,
    protect: Protect = (),
    now: datetime | None = None,
    grace: timedelta = GRACE,
) -> ThreadPlan:
    """What the policy would do to the thread of this image.

    `protect` are checkpoint ids of any namespace, or whole `checkpoint_map`s; ids that the thread
    does not hold are ignored. `now` has a time zone (default: the present). Raises `UsageError`
    for a bare text as `protect` and for a `now` without a time zone.
    """
    return plan_by(image, terms_of(policy, protect=protect, now=now, grace=grace))


def plans(
    rows: RowAccess,
    policy: RetentionPolicy,
    *,
    threads: Sequence[str | int] | None = None,
    protect: Protect = (),
    now: datetime | None = None,
    grace: timedelta = GRACE,
    batch: int = BATCH,
) -> Iterator[ThreadPlan]:
    """The plan of these threads or of all, one after the other; nothing is written."""
    terms = terms_of(policy, protect=protect, now=now, grace=grace)
    for image in rows.images(checked_threads(threads), batch=batch):
        yield plan_by(image, terms)


def terms_of(
    policy: RetentionPolicy,
    *,
    protect: Protect = (),
    now: datetime | None = None,
    grace: timedelta = GRACE,
) -> Terms:
    """The policy at a moment, with its arguments checked."""
    if now is not None and now.tzinfo is None:
        raise UsageError("now must have a time zone: give datetime.now(UTC)")
    if grace < timedelta(0):
        raise UsageError("grace: the age must not be negative")
    return Terms(policy, now or datetime.now(UTC), protected_ids(protect), grace)


def checked_threads(threads: Sequence[str | int] | None) -> list[str] | None:
    """The thread ids as text, None for all. Raises `UsageError` for a bare text (T29)."""
    if isinstance(threads, str):
        raise UsageError(f"threads must be a list of thread ids, not the text {threads!r}")
    return None if threads is None else [str(thread) for thread in threads]


def plan_by(image: ThreadImage, terms: Terms) -> ThreadPlan:
    """`plan_thread` on terms that are checked."""
    whole = _whole(image, terms)
    if whole is not None:
        return whole
    if not (terms.policy.keeps or terms.policy.leaf_siblings or terms.policy.duration_leaves):
        return _untouched(image)
    found = list(damages(image))
    reason = _unsafe(found) or _refused(image, terms.policy)
    if reason:
        return ThreadPlan(image.thread_id, refused=reason)
    try:
        return _partial(image, terms, found)
    except LineageError as error:
        return ThreadPlan(image.thread_id, refused=str(error))


def delta_channels(image: ThreadImage) -> frozenset[str]:
    """The channels that some checkpoint counts or snapshots, or lacks where nothing is counted."""
    shown, absent, told = set[str](), set[str](), False
    for row in image.checkpoints:
        shown |= row.counted | row.snapshots
        told = told or bool(row.metadata.get("delta_writes_versioned"))
        absent |= row.versions.keys() - row.stored - row.nulls
    if shown and not told:
        return frozenset(shown)
    return frozenset(shown | {name for name in absent if not is_reserved(name)})


def without(image: ThreadImage, keys: Collection[CheckpointKey]) -> ThreadImage:
    """The image with these checkpoints and their writes gone."""
    if not keys:
        return image
    return replace(
        image,
        checkpoints=tuple(row for row in image.checkpoints if row.key not in keys),
        writes=tuple(row for row in image.writes if row.key[:2] not in keys),
    )


def freed_by(plan: ThreadPlan, image: ThreadImage) -> dict[Table, Freed]:
    """Rows and logical bytes that the plan's deletions free, by table."""
    return {
        "checkpoints": _sum(r.bytes for r in image.checkpoints if _takes(plan, r.key)),
        "blobs": _sum(r.bytes for r in image.blobs if plan.whole or r.key in plan.blobs),
        "writes": _sum(r.bytes for r in image.writes if plan.whole or r.key in plan.writes),
    }


def _takes(plan: ThreadPlan, key: CheckpointKey) -> bool:
    return plan.whole or key in plan.checkpoints


def _sum(sizes: Iterable[int]) -> Freed:
    found = list(sizes)
    return Freed(len(found), sum(found))


def _whole(image: ThreadImage, terms: Terms) -> ThreadPlan | None:
    """The plan when the thread goes as a whole, or is asked to and cannot."""
    if not image.rows or not (terms.policy.delete or is_idle(image, terms)):
        return None
    held = sorted(terms.protected.intersection(row.checkpoint_id for row in image.checkpoints))
    if held and terms.policy.delete:
        reason = f"holds the protected checkpoint {held[0]}: protect it no longer, or leave it"
        return ThreadPlan(image.thread_id, refused=reason)
    if held:
        return None
    plan = ThreadPlan(
        image.thread_id,
        whole=True,
        checkpoints=frozenset(row.key for row in image.checkpoints),
        writes=frozenset(row.key for row in image.writes),
        blobs=frozenset(row.key for row in image.blobs),
    )
    return replace(plan, freed=freed_by(plan, image))


def _untouched(image: ThreadImage) -> ThreadPlan:
    """The plan of thread rules that let this thread be."""
    kept = {space: KeepSet(rows, rows) for space, rows in image.spaces.items()}
    return ThreadPlan(image.thread_id, kept=kept)


def _unsafe(found: Iterable[Damage]) -> str:
    """Why nothing of the thread can be judged, else empty."""
    return next((str(each) for each in found if each.kind not in _WHERE_KEPT), "")


def _unsafe_there(found: Iterable[Damage], kept: Mapping[str, KeepSet]) -> str:
    """Why what stays cannot be trusted, else empty. A gap has been met by its keep-set already."""
    here = (each for each in found if each.kind != "broken-chain")
    return next((str(d) for d in here if d.checkpoint_id in kept.get(d.checkpoint_ns, ())), "")


def _refused(image: ThreadImage, policy: RetentionPolicy) -> str:
    names = sorted(delta_channels(image)) if policy.delta == "refuse" else []
    if not names:
        return ""
    return f"has delta channels ({', '.join(names)}): use keep-latest or compact instead of refuse"


def _partial(image: ThreadImage, terms: Terms, found: Sequence[Damage]) -> ThreadPlan:
    policy = terms.policy
    leaves = frozenset[CheckpointKey]()
    if policy.duration_leaves or policy.leaf_siblings:
        leaves = leaf_candidates(image, policy, terms.protected)
    rest = without(image, leaves)
    kept = _keep_sets(rest, terms)
    if reason := _unsafe_there(found, kept):
        return ThreadPlan(image.thread_id, refused=reason)
    folds, grafts = tuple[Fold, ...](), tuple[Graft, ...]()
    if policy.delta == "snapshot":
        folds = folds_of(rest, kept)
        kept = {space: _all_of(rows, kept.get(space), found) for space, rows in rest.spaces.items()}
    elif policy.delta == "compact":
        folds = folds_of(rest, kept)
        kept = {space: folded(rest, space, each) for space, each in kept.items()}
    elif policy.duration_leaves:
        keys = [(space, name) for space, each in kept.items() for name in each]
        grafts, rest = relink(rest.cut(keys), terms.protected)
        kept = _keep_sets(rest, terms) if grafts else kept
    return _outcome(image, rest, terms, kept, folds, grafts)


def _keep_sets(image: ThreadImage, terms: Terms) -> dict[str, KeepSet]:
    """Every addressable checkpoint with its own keep-set, so that each reads back as before."""
    wanted = addressable(image, terms)
    return {space: keep_all(image, space, names) for space, names in wanted.items()}


def _all_of(rows: Collection[str], kept: KeepSet | None, found: Sequence[Damage]) -> KeepSet:
    """All of a namespace; of a damaged thread only what was judged is promised to read back."""
    return KeepSet(rows, rows if not found else kept.targets if kept else ())


def _outcome(
    image: ThreadImage,
    rest: ThreadImage,
    terms: Terms,
    kept: Mapping[str, KeepSet],
    folds: tuple[Fold, ...],
    grafts: tuple[Graft, ...],
) -> ThreadPlan:
    gone = frozenset(
        row.key for row in image.checkpoints if row.checkpoint_id not in kept.get(row.key[0], ())
    )
    moved = {(g.checkpoint_ns, g.link_id) for g in grafts if g.handling == "move"}
    plan = ThreadPlan(
        image.thread_id,
        checkpoints=gone,
        writes=frozenset(w for w in dead_writes(image, gone, terms) if w[:2] not in moved),
        blobs=dead_blobs(image, gone, terms),
        detached=_detached(image, rest, gone),
        folds=folds,
        grafts=grafts,
        kept=kept,
    )
    return replace(plan, freed=freed_by(plan, image))


def _detached(
    image: ThreadImage, rest: ThreadImage, gone: Collection[CheckpointKey]
) -> frozenset[CheckpointKey]:
    """The survivors whose parent goes; `rest` has the parents that grafts gave.

    A parent that was missing before is not our doing and stays named: whoever needs it must hear
    of the gap.
    """
    found = set()
    for row in image.checkpoints:
        if row.key in gone or (row.checkpoint_ns, row.parent_id) not in gone:
            continue
        now = rest.row(*row.key)
        if now is None or now.parent_id is None or (row.checkpoint_ns, now.parent_id) in gone:
            found.add(row.key)
    return frozenset(found)
