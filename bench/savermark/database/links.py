"""What the links of one namespace tell: how deep its head lies, how far its seeds, what is off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from savermark.database.base import Space


@dataclass(frozen=True, slots=True)
class Head:
    """The newest checkpoint of a namespace, and the form of what lies below it.

    `depth` counts its ancestors. `distance` is the number of steps to the oldest of the newest
    stored values of its delta channels: what a read must walk; None without delta channels.
    `seeded` is False where a channel has no stored value at all on the way, so that a read walks to
    the end. `tips` are checkpoints without children; `broken`, `above` and `circle` count links
    to a missing parent, links to a parent whose id sorts above, and heads that walk in a circle.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    checkpoints: int
    depth: int
    distance: int | None
    seeded: bool
    delta: tuple[str, ...]
    tips: int
    roots: int
    broken: int
    above: int
    circle: bool

    @property
    def sound(self) -> bool:
        """Whether the links are one line from a root to the head."""
        return self.tips == 1 and self.roots == 1 and not (self.broken or self.above)


def head_of(space: Space) -> Head:
    """The head of a namespace and its form, from the links alone."""
    links = space.links
    depth, circle = _depth(space.head_id, links)
    distance, seeded = _distance(space, depth)
    parents = {parent for parent, _ in links.values() if parent is not None}
    return Head(
        thread_id=space.thread_id,
        checkpoint_ns=space.checkpoint_ns,
        checkpoint_id=space.head_id,
        checkpoints=len(links),
        depth=depth,
        distance=distance,
        seeded=seeded,
        delta=tuple(sorted(space.delta)),
        tips=len(links.keys() - parents),
        roots=sum(1 for parent, _ in links.values() if parent is None),
        broken=len(parents - links.keys()),
        above=_above(links.items(), links),
        circle=circle,
    )


def _depth(head_id: str, links: Mapping[str, tuple[str | None, int]]) -> tuple[int, bool]:
    """The stored ancestors of the head, and whether they run in a circle."""
    depth, at = 0, links[head_id][0]
    while at is not None and at in links:
        depth += 1
        if depth >= len(links):
            return depth, True
        at = links[at][0]
    return depth, False


def _distance(space: Space, depth: int) -> tuple[int | None, bool]:
    if not space.delta:
        return None, True
    sought, at, steps = space.delta, space.head_id, 0
    while True:
        sought = sought - space.seeds.get(at, frozenset())
        if not sought:
            return steps, True
        parent = space.links[at][0]
        if steps >= depth or parent is None or parent not in space.links:
            return steps, False
        at = parent
        steps += 1


def _above(items: Iterable[tuple[str, tuple[str | None, int]]], links: Mapping[str, object]) -> int:
    return sum(1 for name, (parent, _) in items if parent and parent >= name and parent in links)
