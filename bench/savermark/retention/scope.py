"""What must hold of one thread after a policy ran, by what the policy says of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from savermark.history.lineage import LineageError, keep_ids
from savermark.retention.leftovers import is_call
from savermark.retention.promises import ThreadReading
from savermark.retention.records import ThreadPlan

if TYPE_CHECKING:
    from savermark.history.lineage import CheckpointKey


@dataclass(frozen=True)
class Scope:
    """What the policy promised of one thread. `told` is False where nobody said what was kept.

    `targets` are promised in full. `stayed` are others that are left, where nobody said what for:
    they must read as before.
    """

    told: bool
    targets: frozenset[CheckpointKey]
    protected: frozenset[CheckpointKey]
    support: frozenset[CheckpointKey] = frozenset()
    stayed: frozenset[CheckpointKey] = frozenset()
    whole: bool = False
    refused: bool = False
    moved: Mapping[CheckpointKey, CheckpointKey] = field(default_factory=dict)

    @property
    def readable(self) -> frozenset[CheckpointKey]:
        """Every checkpoint that must read back as before."""
        return self.targets | self.protected | self.stayed


def scope_of(
    before: ThreadReading,
    after: ThreadReading,
    plan: ThreadPlan | frozenset[str] | None,
    protect: Collection[str],
) -> Scope:
    """What must hold, by the plan where there is one.

    A thread that a plan refused must be as before. Without a plan the heads of the lasting
    namespaces and the protected ids are promised. Whatever else stayed must read as before, but
    for what a checkpoint that does so needs: that is support.
    """
    protected = frozenset(key for key in before.keys if key[1] in protect)
    if isinstance(plan, ThreadPlan) and plan.refused:
        return Scope(True, before.keys, protected, refused=True)
    if isinstance(plan, ThreadPlan):
        spaces = plan.kept.items()
        kept = frozenset((space, one) for space, keep in spaces for one in keep.targets)
        helping = frozenset((space, one) for space, keep in spaces for one in keep.support)
        moves = {
            (each.checkpoint_ns, each.parent_id): (each.checkpoint_ns, each.link_id)
            for each in plan.grafts
            if each.handling == "move"
        }
        return Scope(True, kept, protected, helping, whole=plan.whole, moved=moves)
    if plan is not None:
        named = frozenset(key for key in before.keys if key[1] in plan)
        return Scope(True, named, protected, (before.keys & after.keys) - named)
    newest = {**before.heads, **after.heads}
    heads = frozenset((space, one) for space, one in newest.items() if not is_call(space))
    promised = heads | protected
    left = before.readings.keys() & after.readings.keys()
    right = frozenset(
        key for key in left if before.readings[key].lost_in(after.readings[key]) is None
    )
    wrong = frozenset(left - right - promised)
    support = wrong & _needed(after, right | promised) if wrong else wrong
    return Scope(False, promised, protected, support, frozenset(left) - support - promised)


def _needed(after: ThreadReading, keys: Iterable[CheckpointKey]) -> frozenset[CheckpointKey]:
    found = set[tuple[str, str]]()
    for key in keys:
        try:
            found |= {(key[0], one) for one in keep_ids(after.image, *key) if one != key[1]}
        except LineageError:
            continue  # a broken chain supports nothing
    return frozenset(found)
