"""Support rows: none in a thread as the runtime wrote it."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from savermark.graphs import build_graph
from savermark.graphs.play import play
from savermark.graphs.serde import make_serde
from savermark.history.rows import row_access
from savermark.retention.support import support_rows
from savermark.script import write_script
from savermark.spec import load_workload

SHAPES = ("branching", "human-in-the-loop", "fan-out", "two-channels", "durations", "tool-heavy")


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("name", SHAPES)
def test_an_unpruned_thread_has_none(name: str, durability: str) -> None:
    for variant in load_workload(name, [f"run.durability={durability}", "turns=6"]):
        spec = variant.spec
        saver = InMemorySaver(serde=make_serde(spec))
        graph = build_graph(spec, saver)
        threads = [thread for thread in write_script(spec) if thread.source is None]
        play(graph, saver, threads[0], spec, lambda number: nullcontext())
        image = row_access(saver).image(threads[0].thread_id)
        assert image.checkpoints
        assert support_rows(image.checkpoints) == frozenset()
