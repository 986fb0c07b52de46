"""Which checkpoints of a thread stay only for others' sake, told from the rows that are left.

A prune leaves no mark on them. But the oldest one that it left names a version of a channel whose
stored value went with an ancestor: what is rebuilt from there would start from nothing. A thread
that nobody pruned has no such root, as the runtime snapshots what a first checkpoint holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from savermark.history.lineage import CheckpointKey, CheckpointRow


def support_rows(rows: Iterable[CheckpointRow]) -> frozenset[CheckpointKey]:
    """The checkpoints with a delta channel that cannot be rebuilt any more.

    Never offer one to resume or branch from. Only channels that the metadata counts are judged.
    """
    stored = {row.key: row for row in rows}
    lost: dict[CheckpointKey, frozenset[str]] = {}
    for key in stored:
        trail = []
        here: CheckpointKey | None = key
        while here is not None and here not in lost and here not in trail:
            trail.append(here)
            parent = stored[here].parent_id
            here = (here[0], parent) if parent and (here[0], parent) in stored else None
        above = lost.get(here) if here is not None else None
        for each in reversed(trail):
            row = stored[each]
            sought = row.counted & row.versions.keys() if above is None else above
            above = lost[each] = frozenset(sought - row.stored - row.nulls)
    return frozenset(key for key, channels in lost.items() if channels)
