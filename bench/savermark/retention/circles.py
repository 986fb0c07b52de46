"""Threads whose links to parents form a circle: they are read without walks that never end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from savermark.retention.asking import Failure

if TYPE_CHECKING:
    from savermark.history.image import ThreadImage
    from savermark.history.lineage import CheckpointKey
    from savermark.retention.asking import Reader

T = TypeVar("T")


def unclosed(image: ThreadImage, work: Reader[T]) -> Reader[T]:
    """`work`, where no value is asked for whose ancestors close to a circle.

    The walks of the Postgres and memory savers and of the base class never end on one.
    """
    closed = circling(image)
    if not closed:
        return (yield from work)
    answer: Any = None
    while True:
        try:
            ask = work.send(answer)
        except StopIteration as stop:
            return cast("T", stop.value)
        head = image.heads.get(ask.checkpoint_ns)
        name = ask.checkpoint_id or (head.checkpoint_id if head else "")
        if ask.what in ("history", "state") and (ask.checkpoint_ns, name) in closed:
            answer = Failure(f"checkpoint {name} is rebuilt from ancestors that form a circle")
        else:
            answer = yield ask


def circling(image: ThreadImage) -> frozenset[CheckpointKey]:
    """The checkpoints from which the links to parents lead into a circle."""
    parents = {
        row.key: (row.checkpoint_ns, row.parent_id) for row in image.checkpoints if row.parent_id
    }
    closed: dict[CheckpointKey, bool] = {}
    for key in parents:
        path: dict[CheckpointKey, None] = {}
        at = key
        while at in parents and at not in closed and at not in path:
            path[at] = None
            at = parents[at]
        closed.update(dict.fromkeys(path, closed.get(at, at in path)))
    return frozenset(key for key, circle in closed.items() if circle)
