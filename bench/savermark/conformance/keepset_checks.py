"""`delta_channel_keepset`: which checkpoints must survive so that one reads back the same.

A saver that brings `get_delta_channel_keepset` is asked for it. Of any other the set is worked out
through its `get_tuple`, so the rules say whether parents and stored values come back well enough
for retention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from savermark.conformance.model import Checks, same
from savermark.conformance.threads import Thread, snapshot
from savermark.history.keepset import akeep_set, keep_set

if TYPE_CHECKING:
    from savermark.conformance.apis import Api

CHECKS = Checks("delta")
CAPABILITY = "delta_channel_keepset"


async def _kept(thread: Thread, name: str, channels: Any) -> set[str]:
    """The names of the checkpoints in the keep-set."""
    api, config = thread.api, thread.at(name)
    if channels != "auto" and api.offers("get_delta_channel_keepset"):
        found = await api.call("get_delta_channel_keepset", config=config, channels=channels)
    elif api.name == "sync":
        found = keep_set(api.saver, config, channels)
    else:
        found = await akeep_set(api.saver, config, channels)
    names = {ident: known for known, ident in thread.ids.items()}
    return {names.get(ident, ident) for ident in found}


async def _two_channels(api: Api) -> Thread:
    """c1 .. c6: `near` has a snapshot at c5, `far` at c2; both move all the time."""
    thread = Thread(api)
    for number in range(1, 7):
        values = {5: {"near": snapshot("n")}, 2: {"far": snapshot("f")}}.get(number, {})
        counts = {"counters_since_delta_snapshot": {"near": [1, 1], "far": [1, 1]}}
        parent = f"c{number - 1}" if number > 1 else None
        await thread.put(f"c{number}", parent, values, moved=["near", "far"], metadata=counts)
        await thread.write(f"c{number}", ("near", number), ("far", number))
    return thread


@CHECKS.rule(CAPABILITY, "no channels: the checkpoint alone")
async def _alone(api: Api) -> None:
    same(await _kept(await _two_channels(api), "c6", []), {"c6"}, "keep-set")


@CHECKS.rule(CAPABILITY, "a snapshot some steps back: the whole chain to it, it included")
async def _chain(api: Api) -> None:
    thread = await _two_channels(api)
    same(await _kept(thread, "c6", ["near"]), {"c6", "c5"}, "keep-set")
    same(await _kept(thread, "c6", ["far"]), {"c6", "c5", "c4", "c3", "c2"}, "keep-set")


@CHECKS.rule(CAPABILITY, "several channels: the union")
async def _union(api: Api) -> None:
    kept = await _kept(await _two_channels(api), "c6", ["near", "far"])
    same(kept, {"c6", "c5", "c4", "c3", "c2"}, "keep-set")


@CHECKS.rule(CAPABILITY, "channels taken from the data are the same")
async def _auto(api: Api) -> None:
    kept = await _kept(await _two_channels(api), "c6", "auto")
    same(kept, {"c6", "c5", "c4", "c3", "c2"}, "keep-set")


@CHECKS.rule(CAPABILITY, "a checkpoint that stores the value itself needs no other")
async def _itself(api: Api) -> None:
    same(await _kept(await _two_channels(api), "c5", ["near"]), {"c5"}, "keep-set")


@CHECKS.rule(CAPABILITY, "no snapshot: the chain to the root")
async def _root(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", moved=["d"])
    await thread.put("c2", "c1", moved=["d"])
    await thread.put("c3", "c2", moved=["d"])
    same(await _kept(thread, "c3", ["d"]), {"c1", "c2", "c3"}, "keep-set")


@CHECKS.rule(CAPABILITY, "a fork keeps its own branch only")
async def _fork(api: Api) -> None:
    thread = await _two_channels(api)
    await thread.put("f1", "c3", moved=["far"])
    await thread.put("f2", "f1", moved=["far"])
    same(await _kept(thread, "f2", ["far"]), {"f2", "f1", "c3", "c2"}, "keep-set")
