"""What recording adds to a saver call: the same calls wrapped and bare, interleaved.

Memory `put` is the fastest call there is, so there the share is largest. What is put are the
checkpoints of a real conversation, delta channels and all: an empty checkpoint costs half as much,
and no run makes one. Each round puts them under one new thread id after another; a put changes what
the next one costs, so no checkpoint is put twice under one id.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from goals import Goal, interleaved_ratio
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.graphs import build_graph
from savermark.graphs.play import play
from savermark.recording import Recorder, RecordingSaver
from savermark.script import write_script
from savermark.spec import ConversationSpec, WorkloadSpec, fixed

# Above the goal for memory; what the noise of a database call hides for the others.
GOALS = {"memory": 1.05, "sqlite": 1.02, "postgres": 1.02}
ROUNDS = {"memory": 601, "sqlite": 31, "postgres": 31}
THREADS = {"memory": 3, "sqlite": 2, "postgres": 1}  # of 60 puts each, in a block


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
                recorder = Recorder()
                number = iter(range(1_000_000))
                return interleaved_ratio(
                    _puts(RecordingSaver(bare, recorder), number, THREADS[name]),
                    _puts(bare, number, THREADS[name]),
                    ROUNDS[name],
                    between=lambda: recorder.spans("put"),  # as a run does between its turns
                )
        finally:
            store.destroy()


def _puts(
    saver: BaseCheckpointSaver[Any], number: Iterator[int], threads: int
) -> Callable[[], None]:
    recorded = _conversation()

    def block() -> None:
        put = saver.put
        for _ in range(threads):
            thread = f"t{next(number)}"
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            for checkpoint, metadata, versions in recorded:
                put(config, checkpoint, metadata, versions)

    return block


@cache
def _conversation() -> list[tuple[Any, ...]]:
    """Checkpoint, metadata and new versions of each put of a chat thread."""
    puts: list[tuple[Any, ...]] = []

    class Tap(InMemorySaver):
        def put(self, config: Any, *rest: Any) -> Any:
            puts.append(rest)
            return super().put(config, *rest)

    spec = WorkloadSpec(name="chat", conversation=ConversationSpec(turns=fixed(20)))
    saver = Tap()
    play(build_graph(spec, saver), saver, write_script(spec)[0], spec, lambda _: nullcontext())
    return puts
