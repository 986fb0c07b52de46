"""A thread of fixed ids and versions, and walks of it: what `test_meter.py` counts in processes."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from fix_threads import Hand, at, snapshot
from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.history.walks import walks
from savermark.meter import count

DEPTH = 60
HEAD = at("fixed", f"c{DEPTH:04}")
CHANNELS = ["log"]


def build(saver: BaseCheckpointSaver[Any]) -> None:
    """`DEPTH` checkpoints under a snapshot, two writes each; a value of another channel."""
    if hasattr(saver, "setup"):
        saver.setup()
    hand = Hand(saver, "fixed")
    hand.put("c0000", None, {"log": snapshot("s"), "fat": "y" * 3_000}, counts=["log"])
    for number in range(DEPTH):
        hand.write(f"c{number:04}", ("log", [f"w{number}"]), ("log", ["and more"]))
        name = f"c{number + 1:04}"
        hand.put(name, f"c{number:04}", {"n": number}, moved=["log"], counts=["log"])


def native(saver: BaseCheckpointSaver[Any]) -> Any:
    """The saver's own walk."""
    return saver.get_delta_channel_history(config=HEAD, channels=CHANNELS)


async def anative(saver: BaseCheckpointSaver[Any]) -> Any:
    """The saver's own walk, async."""
    return await saver.aget_delta_channel_history(config=HEAD, channels=CHANNELS)


def main() -> None:
    """The counts of each call on a fresh store, as JSON on stdout."""
    job = json.load(sys.stdin)
    place = Location(Path(job["folder"]), job["store"], job["dsn"])
    store = get_backend(job["name"]).create(place)
    try:
        with store.saver() as saver:
            build(saver)
            store.settle()
            calls: dict[str, Any] = {
                name: partial(walk.history, saver, HEAD, CHANNELS)
                for name, walk in walks().items()
                if walk.supports(saver)
            }
            calls["get_tuple"] = partial(saver.get_tuple, HEAD)
            seen = {name: count(saver, call).to_json() for name, call in calls.items()}
            sys.stdout.write(json.dumps(seen))
    finally:
        store.destroy()


if __name__ == "__main__":
    main()
