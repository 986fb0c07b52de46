"""Which values `compact` stores onto which checkpoints, and what is still needed then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from savermark.history.lineage import KeepSet, keep_all, missing_values
from savermark.retention.records import Fold
from savermark.retention.turns import line

if TYPE_CHECKING:
    from savermark.history.lineage import CheckpointRow, ThreadImage


def folds_of(image: ThreadImage, kept: Mapping[str, KeepSet]) -> tuple[Fold, ...]:
    """The values to store onto the addressable checkpoints so that none needs an ancestor.

    Where one shares a version with another that is folded, its value is made as well: on some
    stores both would show the one that is stored, so they must be the same (`check_versions`).
    """
    found = []
    for space, each in sorted(kept.items()):
        rows = image.spaces[space]
        rebuilt = {name: _rebuilt(rows, rows[name]) for name in sorted(each.targets)}
        shared = {(c, rows[name].versions[c]) for name, names in rebuilt.items() for c in names}
        for name, names in rebuilt.items():
            row = rows[name]
            absent = row.versions.keys() - row.stored - row.nulls
            channels = names | {c for c in absent if (c, row.versions[c]) in shared}
            if channels:
                found.append(Fold(space, name, tuple(sorted(channels))))
    return tuple(found)


def _rebuilt(rows: Mapping[str, CheckpointRow], row: CheckpointRow) -> set[str]:
    """The channels that a read of `row` rebuilds, by the rule of its keep-set (`lineage.needs`).

    A root rebuilds none from anything: what it does not store is empty there.
    """
    if row.parent_id is None:
        return set()
    needed, doubtful = missing_values(row)
    counting = bool(row.counted)
    for above in line(rows, row.checkpoint_id)[1:] if doubtful else ():
        counting = counting or bool(above.counted)
        shown = doubtful & (above.counted | above.snapshots)
        settled = (doubtful - shown) & above.stored
        needed = needed | shown | (set() if counting else settled)
        doubtful = doubtful - shown - settled
    return needed if counting else needed | doubtful  # silence proves nothing where nobody counts


def folded(image: ThreadImage, space: str, kept: KeepSet) -> KeepSet:
    """What is left of a keep-set when its targets store all of their values."""
    return KeepSet.merge([KeepSet((), kept.targets), keep_all(image, space, kept.targets, [])])
