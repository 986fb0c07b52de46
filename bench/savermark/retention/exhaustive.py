"""The leaf engine: which childless checkpoints of a thread may go, by rules that look at all of it.

Only what is provably not needed is named: a leaf without writes whose parent stays, off the way to
any head, and of a shape that the policy enables. Everything else stays.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from savermark.errors import UsageError
from savermark.retention.duration import is_duration_only

if TYPE_CHECKING:
    from savermark.history.image import CheckpointKey, CheckpointRow, ThreadImage
    from savermark.retention.policy import RetentionPolicy

Protect = Iterable[str | Mapping[str, str]]  # checkpoint ids, and whole `checkpoint_map`s


def protected_ids(protect: Protect) -> frozenset[str]:
    """The checkpoint ids that are named one by one or as the values of a `checkpoint_map`.

    Raises `UsageError` for a bare text, which would be taken for its letters.
    """
    if isinstance(protect, str):
        raise UsageError(f"protected checkpoints must be a list of ids, not the text {protect!r}")
    if isinstance(protect, Mapping):
        protect = (protect,)
    found: set[str] = set()
    for each in protect:
        found.update((each,) if isinstance(each, str) else each.values())
    return frozenset(found)


def leaf_candidates(
    image: ThreadImage,
    policy: RetentionPolicy,
    protected: Protect = (),
    *,
    cap: int | None = None,
) -> frozenset[CheckpointKey]:
    """The leaves that `duration_leaves` and `leaf_siblings` of the policy let go.

    A side branch shrinks from its tip, as long as the tips own no writes. A removed checkpoint's
    parent always stays or goes after it, so no link is left dangling. `cap` is the most that are
    named. Raises `UsageError` for a negative one.
    """
    if cap is not None and cap < 0:
        raise UsageError(f"cap={cap}: the most checkpoints to delete must be 0 or more")
    duration = {row.key for row in image.checkpoints if is_duration_only(image, row)}
    kept = _protected(image, duration, protected_ids(protected))
    gone: set[CheckpointKey] = set()
    for space in image.spaces:
        leaves = _Leaves(image, space, policy, duration, kept)
        for key in leaves.shrink():
            if cap is not None and len(gone) >= cap:
                return frozenset(gone)
            gone.add(key)
    return frozenset(gone)


class _Leaves:
    """One namespace whose leaves are taken one after the other, newest first."""

    def __init__(
        self,
        image: ThreadImage,
        space: str,
        policy: RetentionPolicy,
        duration: set[CheckpointKey],
        kept: Collection[CheckpointKey],
    ) -> None:
        self.image, self.policy, self.duration, self.kept = image, policy, duration, kept
        self.rows = dict(image.spaces[space])
        self.births = {name: len(image.children.get((space, name), ())) for name in self.rows}

    def shrink(self) -> Iterable[CheckpointKey]:
        """The keys in an order in which each is childless when it is its turn."""
        waiting = sorted(name for name, births in self.births.items() if births == 0)
        while waiting:
            row = self.rows[waiting.pop()]
            if not self._may_go(row):
                continue
            yield row.key
            del self.rows[row.checkpoint_id]
            parent = row.parent_id or ""
            self.births[parent] -= 1
            if self.births[parent] == 0:
                insort(waiting, parent)

    def _may_go(self, row: CheckpointRow) -> bool:
        parent = self.rows.get(row.parent_id or "")
        if parent is None or row.key in self.kept or row.unreadable or parent.unreadable:
            return False
        if self.image.own_writes.get(row.key):
            return False
        if row.key in self.duration:
            return self.policy.duration_leaves and self._copies(row, parent)
        return self.policy.leaf_siblings

    def _copies(self, row: CheckpointRow, parent: CheckpointRow) -> bool:
        if row.versions != parent.versions or not row.stored <= parent.stored:
            return False
        newest = reversed(self.rows)
        if row.checkpoint_id != next(newest):
            return True
        # The head goes only where its parent takes over, and with nothing pending: a new head's own
        # writes are taken for work of a run that has not ended.
        return next(newest) == parent.checkpoint_id and not self.image.own_writes.get(parent.key)


def _protected(
    image: ThreadImage, duration: Collection[CheckpointKey], named: Collection[str]
) -> frozenset[CheckpointKey]:
    """Heads, named checkpoints, selectors and what replays load, each with all its ancestors."""
    ids = set(named)
    for row in image.checkpoints:
        parents = row.metadata.get("parents")
        if isinstance(parents, Mapping):
            ids.update(value for value in parents.values() if isinstance(value, str))
    roots = sorted(image.spaces.get("", ()))
    found: set[CheckpointKey] = set()
    for space, rows in image.spaces.items():
        chosen = ids & rows.keys()
        real = [name for name, row in rows.items() if row.key not in duration]
        chosen.add(max(real or rows))
        if space:
            chosen |= _replayed(sorted(rows), roots)
        for name in chosen:
            current = rows.get(name)
            while current is not None and current.key not in found:
                found.add(current.key)
                current = rows.get(current.parent_id or "")
    return frozenset(found)


def _replayed(names: list[str], roots: list[str]) -> set[str]:
    """What a replay of a root checkpoint loads of a persistent subgraph: the newest before it."""
    places = (bisect_left(names, root) for root in roots)
    return {names[place - 1] for place in places if place}
