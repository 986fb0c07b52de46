"""Where the turns of a conversation begin, told from the rows of its root namespace.

A **turn** is what one run of the graph added. It starts at a checkpoint of source `input`; or, for
runs that store none, at a `loop` checkpoint on a settled parent that

- owns writes of no task (a `Command` with an update or a goto), or
- lies two or more steps back (durability `exit`, which stores one checkpoint a run).

A resume goes on with its turn. An `update` belongs to the turn it follows; only in a thread that
no run ever touched each update that moved a channel is a turn. Where none of this shows, no turn
starts: what is not told apart is kept together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from savermark.history.lineage import TASKS, TRIGGER
from savermark.retention.duration import is_duration_only

if TYPE_CHECKING:
    from savermark.history.lineage import CheckpointRow, ThreadImage

NULL_TASK = "00000000-0000-0000-0000-000000000000"
_INTERRUPT, _RESUME = "__interrupt__", "__resume__"
_CONTROL = frozenset({"__error__", "__scheduled__", _INTERRUPT, _RESUME})


def settled(image: ThreadImage, row: CheckpointRow) -> bool:
    """Whether nothing waits to run from this checkpoint, as far as its rows tell.

    A trigger that still holds its value waits for its node; an interrupt waits for an answer.
    """
    held = row.stored | row.nulls
    if "__start__" in held or any(name.startswith(TRIGGER) for name in held):
        return False
    owned = image.own_writes.get(row.key, ())
    return not any(write.channel in (_INTERRUPT, _RESUME) for write in owned)


def line(rows: Mapping[str, CheckpointRow], checkpoint_id: str) -> list[CheckpointRow]:
    """A checkpoint and its ancestors, itself first, as far as they are stored.

    The links must not run in a circle (`damage.damages`).
    """
    found = []
    row = rows.get(checkpoint_id)
    while row is not None:
        found.append(row)
        row = rows.get(row.parent_id) if row.parent_id is not None else None
    return found


def turn_starts(image: ThreadImage, ancestry: Sequence[CheckpointRow]) -> list[int]:
    """The places in a line (newest first) at which a turn starts, newest first."""
    above = [*ancestry[1:], None]
    pairs = list(zip(ancestry, above, strict=True))
    starts = [at for at, pair in enumerate(pairs) if _starts_run(image, *pair)]
    return starts or [at for at, pair in enumerate(pairs) if _is_update(image, *pair)]


def last_turns(image: ThreadImage, space: str, head_id: str, count: int) -> frozenset[str]:
    """The ids of the last `count` turns up to a head, and of what the oldest one branched from.

    That is every checkpoint between the head and the start of the oldest turn, and on to the
    nearest settled one before it: to answer that turn anew one starts there, and finds it by
    following each link. All of the line when it has no more turns than that.
    """
    ancestry = line(image.spaces.get(space, {}), head_id)
    starts = turn_starts(image, ancestry)
    if len(starts) < count:
        return frozenset(row.checkpoint_id for row in ancestry)
    end = starts[count - 1] + 1
    while end < len(ancestry):
        base = ancestry[end]
        end += 1
        if settled(image, base) and not is_duration_only(image, base):
            break
    return frozenset(row.checkpoint_id for row in ancestry[:end])


def _starts_run(image: ThreadImage, row: CheckpointRow, parent: CheckpointRow | None) -> bool:
    source = row.metadata.get("source")
    if source == "input":
        return True
    if source != "loop" or parent is None or _same_run(row, parent):
        return False
    if not settled(image, parent):
        return False
    owned = image.own_writes.get(parent.key, ())
    if any(write.task_id == NULL_TASK and write.channel not in _CONTROL for write in owned):
        return True
    steps = row.metadata.get("step"), parent.metadata.get("step")
    return all(isinstance(step, int) for step in steps) and steps[0] - steps[1] >= 2  # type: ignore[operator]


def _same_run(row: CheckpointRow, parent: CheckpointRow) -> bool:
    run = row.metadata.get("run_id")
    return run is not None and run == parent.metadata.get("run_id")


def _is_update(image: ThreadImage, row: CheckpointRow, parent: CheckpointRow | None) -> bool:
    if row.metadata.get("source") != "update" or is_duration_only(image, row):
        return False
    return parent is None or row.versions != parent.versions


def waits(image: ThreadImage, row: CheckpointRow) -> bool:
    """Whether something may still run from this checkpoint: the cautious form of not `settled`."""
    return not settled(image, row) or TASKS in row.stored
