"""The duration-only links of a thread that go with a policy, all at once.

Only links that need no value to be stored are taken (`graft` removes the others, one by one, with
the values in hand); a link whose removal is refused simply stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from savermark.retention.duration import is_duration_only
from savermark.retention.graft import graft_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.history.lineage import CheckpointKey, CheckpointRow, ThreadImage
    from savermark.retention.records import Graft


def relink(image: ThreadImage, protected: frozenset[str]) -> tuple[tuple[Graft, ...], ThreadImage]:
    """The grafts in the order in which they are made, and the thread after them.

    Links that touch one another are taken one after the other, each judged by what the ones before
    it left.
    """
    made: list[Graft] = []
    while found := _round(image, protected):
        made += found
        image = grafted(image, found)
    return tuple(made), image


def _round(image: ThreadImage, protected: frozenset[str]) -> list[Graft]:
    """Grafts that do not touch one another."""
    found: list[Graft] = []
    taken: set[CheckpointKey] = set()
    for row in image.checkpoints:
        if row.key not in image.children or not is_duration_only(image, row):
            continue
        graft = graft_of(image, row, protected)
        if isinstance(graft, str) or graft.handling == "snapshot":
            continue
        space = graft.checkpoint_ns
        touched = {(space, name) for name in (graft.link_id, graft.parent_id, *graft.children)}
        if not touched & taken:
            taken |= touched
            found.append(graft)
    return found


def grafted(image: ThreadImage, grafts: Sequence[Graft]) -> ThreadImage:
    """The thread after grafts that do not touch one another and store no value."""
    links = {(graft.checkpoint_ns, graft.link_id): graft for graft in grafts}

    def joined(row: CheckpointRow) -> CheckpointRow:
        link = links.get((row.checkpoint_ns, row.parent_id or ""))
        return row if link is None else replace(row, parent_id=link.parent_id)

    writes = []
    for write in image.writes:
        link = links.get(write.key[:2])
        if link is None:
            writes.append(write)
        elif link.handling == "move":
            writes.append(replace(write, checkpoint_id=link.parent_id))
    rows = tuple(joined(row) for row in image.checkpoints if row.key not in links)
    return replace(image, checkpoints=rows, writes=tuple(writes))
