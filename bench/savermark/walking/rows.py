"""The thread of a walk workload, row for row: a pure function of the spec.

Ids, versions and task ids are fixed, so that two stores of one spec hold the same bytes. They look
like the runtime's: ids that sort by time, versions of 32 digits and a fraction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from savermark.payload import payload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from savermark.spec import WalkSpec

PROBE = "walk-00000"
OTHER = "other"  # the channel of `channels.other_bytes`
_TS = "2026-01-01T00:00:00+00:00"


@dataclass(frozen=True, slots=True)
class Row:
    """One checkpoint with what is written on it, as arguments of `put` and `put_writes`."""

    parent: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    new_versions: dict[str, str]
    writes: tuple[tuple[str, Any], ...]  # stored on it; they produce its child
    task: str


def channels(spec: WalkSpec) -> tuple[str, ...]:
    """The delta channels."""
    return tuple(f"log{number}" for number in range(spec.channels.count))


def checkpoint_id(number: int, fork: bool = False) -> str:
    """The id of the checkpoint with this number on the chain, or of its fork child.

    A fork child sorts between its parent and the parent's child on the chain.
    """
    place = 2 * number + fork
    return f"1f0{place >> 16:05x}-{place & 0xFFFF:04x}-6000-8000-000000000000"


def version(number: int) -> str:
    """A channel version as the savers make them."""
    return f"{number + 1:032}.{(number * 7919 + 1) % 10**16:016}"


def snapshot_places(spec: WalkSpec, channel: int) -> range:
    """The checkpoints with a channel's snapshots: the head is one update short of the next one."""
    step = spec.frequency(channel)
    last = spec.thread.depth - step  # the head's number less frequency - 1
    if last < 1:
        return range(0)
    first = last if spec.channels.snapshots == "last" else (last - 1) % step + 1
    return range(first, last + 1, step)


def item(spec: WalkSpec, channel: int, number: int) -> Any:
    """What superstep `number` appends to a channel."""
    text = payload(spec.payload, spec.channels.item_bytes, "item", channel, number)
    if spec.channels.kind == "message":
        return AIMessage(text, id=f"m{channel}-{number}")
    return {"number": number, "text": text}


def snapshot(spec: WalkSpec, channel: int, number: int) -> list[Any]:
    """The value that a snapshot on checkpoint `number` stores."""
    count = spec.channels.snapshot_items or number
    return [item(spec, channel, -1 - place) for place in range(count)]


def expected(spec: WalkSpec, channel: int) -> tuple[list[Any] | None, list[Any]]:
    """The seed (None: no snapshot) and the writes that a walk from the head must find."""
    places = snapshot_places(spec, channel)
    start = places[-1] if places else 0
    seed = snapshot(spec, channel, start) if places else None
    return seed, [[item(spec, channel, number)] for number in range(start, spec.thread.depth - 1)]


def thread_rows(spec: WalkSpec) -> Iterator[Row]:
    """The chain from its root to its head, each fork child after its parent."""
    depth, every = spec.thread.depth, spec.thread.forks
    for number in range(depth):
        yield _chain_row(spec, number)
        if every and 0 < number < depth - 1 and number % every == 0:
            yield _fork_row(spec, number)


def foreign_spec(spec: WalkSpec, depth: int) -> WalkSpec:
    """The thread that stands for all others: short items, a value of its own in each checkpoint."""
    shown = spec.channels
    alike = replace(
        shown,
        count=1,
        frequencies=(10,),
        snapshots="last",
        snapshot_items=5,
        item_bytes=min(shown.item_bytes, 100),
        other_bytes=max(1, min(shown.other_bytes, 100)),
    )
    return replace(spec, thread=replace(spec.thread, depth=depth, forks=0), channels=alike)


def _chain_row(spec: WalkSpec, number: int) -> Row:
    names = channels(spec)
    values: dict[str, Any] = {}
    counters: dict[str, list[int]] = {}
    for channel, name in enumerate(names):
        places = snapshot_places(spec, channel)
        if number in places:
            values[name] = _DeltaSnapshot(snapshot(spec, channel, number))
        behind = bool(places) and number >= places.start
        if since := (number - places.start) % places.step if behind else number:
            counters[name] = [since, since]
    is_head = number == spec.thread.depth - 1
    return Row(
        parent=checkpoint_id(number - 1) if number else None,
        writes=() if is_head else _writes(spec, number),
        task=f"{number:08x}-0000-5000-8000-000000000000",
        **_put(spec, checkpoint_id(number), number, number, values, counters),
    )


def _fork_row(spec: WalkSpec, number: int) -> Row:
    """The second child of checkpoint `number`; its writes are marked beyond the chain's."""
    mark = spec.thread.depth + number
    counters = {name: [number + 1, number + 1] for name in channels(spec)}
    return Row(
        parent=checkpoint_id(number),
        writes=_writes(spec, mark),
        task=f"{mark:08x}-0000-5000-8000-000000000000",
        **_put(spec, checkpoint_id(number, fork=True), number + 1, mark, {}, counters),
    )


def _writes(spec: WalkSpec, mark: int) -> tuple[tuple[str, Any], ...]:
    """What superstep `mark` writes; the other channel has that value in the next checkpoint."""
    names = channels(spec)
    written = [(name, [item(spec, channel, mark)]) for channel, name in enumerate(names)]
    if spec.channels.other_bytes:
        written.append((OTHER, _other(spec, mark + 1)))
    return tuple(written)


def _other(spec: WalkSpec, mark: int) -> list[str]:
    # In a list: bare text is kept otherwise on Postgres.
    return [payload(spec.payload, spec.channels.other_bytes, OTHER, mark)]


def _put(
    spec: WalkSpec,
    name: str,
    step: int,
    mark: int,
    values: dict[str, Any],
    counters: dict[str, list[int]],
) -> dict[str, Any]:
    """The arguments of `put`. The root has no update behind it, and so no version of a channel."""
    moved = list(channels(spec)) if step else []
    if spec.channels.other_bytes:
        values = {**values, OTHER: _other(spec, mark)}
        moved.append(OTHER)
    versions = dict.fromkeys(moved, version(mark))
    return {
        "checkpoint": {
            "v": 4,
            "ts": _TS,
            "id": name,
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {"work": versions},
            "updated_channels": None,
        },
        "metadata": {
            "source": "loop",
            "step": step,
            "parents": {},
            "counters_since_delta_snapshot": counters,
        },
        "new_versions": versions,
    }
