"""What recording adds to a saver call: the same calls wrapped and bare, interleaved.

Memory `put` is the fastest call there is, so there the share is largest. Each round puts one new
thread of the same checkpoints through both; a put changes what the next one costs, so no
checkpoint is put twice under one id.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from goals import Goal, interleaved_ratio
from langgraph.checkpoint.base import BaseCheckpointSaver, create_checkpoint, empty_checkpoint

from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.recording import Recorder, RecordingSaver

# Above the goal for memory; what the noise of a database call hides for the others.
GOALS = {"memory": 1.05, "sqlite": 1.02, "postgres": 1.02}
ROUNDS = {"memory": 61, "sqlite": 31, "postgres": 31}
CALLS = {"memory": 2_000, "sqlite": 100, "postgres": 50}


def measure() -> Iterator[Goal]:
    """One goal a backend: median of wrapped/bare over interleaved rounds."""
    for name, goal in GOALS.items():
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            yield Goal(f"recorded put / bare put on {name}", _ratio(name, Path(folder)), goal, "×")


def _ratio(name: str, folder: Path) -> float:
    backend = get_backend(name)
    folder.chmod(0o755)
    server, data = folder / "server", folder / "data"
    server.mkdir()
    data.mkdir()
    with backend.service(server) as dsn:
        store = backend.create(Location(data, "perf", dsn))
        try:
            with store.saver() as bare:
                recorded = RecordingSaver(bare, Recorder())
                number = iter(range(1_000_000))
                return interleaved_ratio(
                    _puts(recorded, number, CALLS[name]),
                    _puts(bare, number, CALLS[name]),
                    ROUNDS[name],
                )
        finally:
            store.destroy()


def _puts(saver: BaseCheckpointSaver[Any], number: Iterator[int], calls: int) -> Callable[[], None]:
    checkpoints = [create_checkpoint(empty_checkpoint(), None, step) for step in range(calls)]
    metadata: Any = {"source": "loop", "step": 1, "parents": {}}

    def block() -> None:
        config: Any = {"configurable": {"thread_id": f"t{next(number)}", "checkpoint_ns": ""}}
        put = saver.put
        for checkpoint in checkpoints:
            put(config, checkpoint, metadata, {})

    return block
