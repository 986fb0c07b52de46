"""`delta_channel_reconstruction`: what is put comes back as the same value through a channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langgraph._internal._typing import MISSING
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite

from savermark.conformance.model import Checks, same
from savermark.conformance.shapes import READINGS, SHAPES, Shape, play, reference
from savermark.conformance.threads import Thread

if TYPE_CHECKING:
    from savermark.conformance.apis import Api
    from savermark.conformance.model import Run

CHECKS = Checks("delta")
CAPABILITY = "delta_channel_reconstruction"


def _extend(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


def _merge(state: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for part in (state, *writes) for key, value in part.items()}


async def _value(thread: Thread, name: str, reducer: Any, kind: type) -> Any:
    """The channel's value at a checkpoint, the way the runtime rebuilds it."""
    found = (await thread.history(name, "d"))["d"]
    channel: DeltaChannel[Any] = DeltaChannel(reducer, kind).from_checkpoint(
        found.get("seed", MISSING)
    )
    channel.replay_writes(found["writes"])
    return channel.get()


@CHECKS.rule(CAPABILITY, "a snapshot comes back as a snapshot, not as its bare value")
async def _type(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", values={"d": _DeltaSnapshot(["a"])})
    held = (await thread.tuple("c1")).checkpoint["channel_values"].get("d")
    same(type(held).__name__, _DeltaSnapshot.__name__, "type of the stored value")
    same(getattr(held, "value", None), ["a"], "value of the snapshot")


@CHECKS.rule(CAPABILITY, "snapshot and writes of a list give its value")
async def _list(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", values={"d": _DeltaSnapshot(["s"])})
    await thread.write("c1", ("d", ["a", "b"]))
    await thread.put("c2", "c1", moved=["d"])
    await thread.write("c2", ("d", ["c"]))
    await thread.put("c3", "c2", moved=["d"])
    same(await _value(thread, "c3", _extend, list), ["s", "a", "b", "c"], "value")


@CHECKS.rule(CAPABILITY, "writes alone give the value")
async def _unseeded(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", moved=["d"])
    await thread.write("c1", ("d", {"a": 1, "b": [1, {"x": None}]}))
    await thread.put("c2", "c1", moved=["d"])
    await thread.write("c2", ("d", {"a": 2}))
    await thread.put("c3", "c2", moved=["d"])
    wanted = {"a": 2, "b": [1, {"x": None}]}
    same(await _value(thread, "c3", _merge, dict), wanted, "value")


@CHECKS.rule(CAPABILITY, "an empty snapshot is a value, and what lies before it is gone")
async def _empty(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", moved=["d"])
    await thread.write("c1", ("d", ["before"]))
    await thread.put("c2", "c1", {"d": _DeltaSnapshot([])})
    await thread.put("c3", "c2", moved=["d"])
    same(await _value(thread, "c3", _extend, list), [], "value")


@CHECKS.rule(CAPABILITY, "an overwrite among the writes starts anew")
async def _overwrite(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", values={"d": _DeltaSnapshot(["s"])})
    await thread.write("c1", ("d", ["a"]), ("d", Overwrite(["o"])), ("d", ["b"]))
    await thread.put("c2", "c1", moved=["d"])
    same(await _value(thread, "c2", _extend, list), ["o", "b"], "value")


def _reads_like_memory(shape: Shape, reading: str) -> Run:
    async def run(api: Api) -> None:
        seen = await api.remembered(shape.name, lambda: play(api, shape))
        wanted = await reference(api, shape)
        same(seen[reading], wanted[reading], reading)

    return run


for _shape in SHAPES:
    for _reading in READINGS:
        CHECKS.rule(CAPABILITY, f"{_shape.name}: {_reading}")(_reads_like_memory(_shape, _reading))
