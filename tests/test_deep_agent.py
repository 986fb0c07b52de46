"""The deep-agent shape: the real package against an oracle that never saw it."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from savermark.errors import WorkloadError
from savermark.graphs import build_graph
from savermark.graphs.play import aplay, play
from savermark.script import deep_agent as script
from savermark.script import estimate_bytes, state_digest, write_script
from savermark.spec import BranchingSpec, Dist, RunSpec, ToolsSpec, load_workload, spec_from_json

if TYPE_CHECKING:
    from pathlib import Path

    from savermark.spec import WorkloadSpec

KINDS = ("full", "delta")


def deep(turns: int, kind: str = "delta", **tools: Any) -> WorkloadSpec:
    """Two files a turn and a search of which every third is moved into a file."""
    output = {"dist": "mixture", "small": 900, "large": script.EVICT_OVER + 1, "every": 3}
    return spec_from_json(
        {
            "name": "deep",
            "graph": "deep-agent",
            "state": {"messages": {"kind": kind}, "files": {"writes": 2, "file_bytes": 300}},
            "conversation": {"turns": turns, "human_bytes": 14, "model_bytes": 60},
            "tools": {"calls": 1, "output_bytes": output, **tools},
        }
    )


def played(spec: WorkloadSpec, saver: Any) -> dict[str, Any]:
    """The head's values after the script was played; they must be what the oracle says."""
    graph = build_graph(spec, saver)
    for thread in write_script(spec):
        outcome = play(graph, saver, thread, spec, lambda _: nullcontext())
        snapshot = graph.get_state(outcome.tips["head"])
        assert snapshot.next == ()
        assert state_digest(snapshot.values) == thread.tips["head"].digest
    return dict(snapshot.values)


@pytest.mark.parametrize("kind", KINDS)
def test_the_real_agent_ends_where_the_oracle_says(kind: str) -> None:
    values = played(deep(6, kind), InMemorySaver())
    assert len(values["messages"]) == 6 * 8  # human, 3 x (call, result), answer
    assert len(values["files"]) == 6 * 2 + 2  # and two results that were moved out


@pytest.mark.parametrize("kind", KINDS)
def test_sqlite_gives_the_same_state(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.sqlite"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        played(deep(4, kind), SqliteSaver(connection))


def test_the_async_api_gives_the_same_state(tmp_path: Path) -> None:
    spec = replace(deep(4), run=RunSpec(api="async"))
    (thread,) = write_script(spec)

    async def run() -> str:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.sqlite")) as saver:
            graph = build_graph(spec, saver)
            outcome = await aplay(graph, saver, thread, spec, lambda _: nullcontext())
            return state_digest((await graph.aget_state(outcome.tips["head"])).values)

    assert asyncio.run(run()) == thread.tips["head"].digest


def test_checkpoints_a_turn_are_the_published_ones() -> None:
    saver = InMemorySaver()
    played(deep(2), saver)
    assert sum(len(found) for found in saver.storage["t00000"].values()) == 2 * 11


def test_all_calls_in_one_step() -> None:
    spec = deep(3, order="parallel", calls=2)
    values = played(spec, InMemorySaver())
    assert len(values["messages"]) == 3 * (1 + 1 + 4 + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_summarizer_that_asks_the_same_model_changes_nothing(kind: str) -> None:
    """Past 170,000 tokens the agent has the model summarize; a call counter would slip here."""
    output = 79_000
    values = played(deep(10, kind, output_bytes=output), InMemorySaver())
    assert values["_summarization_event"]["cutoff_index"] > 0
    assert any(path.startswith("/conversation_history/") for path in values["files"])
    assert len(values["messages"]) == 10 * 8


def test_the_limit_of_eviction_is_the_packages_own() -> None:
    values = played(deep(1, output_bytes=script.EVICT_OVER), InMemorySaver())
    assert not any(path.startswith("/large_tool_results/") for path in values["files"])
    values = played(deep(1, output_bytes=script.EVICT_OVER + 1), InMemorySaver())
    assert any(path.startswith("/large_tool_results/") for path in values["files"])


def test_a_lost_file_or_a_swapped_message_changes_the_digest() -> None:
    values = played(deep(3), InMemorySaver())
    digest = state_digest(values)
    files = dict(values["files"])
    files.pop(next(path for path in files if path.startswith("/large_tool_results/")))
    assert state_digest({**values, "files": files}) != digest
    messages = list(values["messages"])
    messages[2], messages[4] = messages[4], messages[2]
    assert state_digest({**values, "messages": messages}) != digest


def test_full_mode_swaps_both_channels_and_delta_none() -> None:
    full = build_graph(deep(1, "full"), InMemorySaver())
    shipped = build_graph(deep(1), InMemorySaver())
    for name in ("messages", "files"):
        assert isinstance(full.channels[name], BinaryOperatorAggregate)
        channel = shipped.channels[name]
        assert isinstance(channel, DeltaChannel)
        assert channel.snapshot_frequency == 50


def test_another_frequency_reaches_the_channel_and_the_state_stays() -> None:
    (variant,) = load_workload(
        "deep-agent", ["messages.kind=delta", "messages.snapshot_frequency=3", "turns=2"]
    )
    saver = InMemorySaver()
    channel = build_graph(variant.spec, saver).channels["messages"]
    assert isinstance(channel, DeltaChannel)
    assert channel.snapshot_frequency == 3
    played(variant.spec, saver)


def test_the_model_needs_only_the_last_message() -> None:
    spec = deep(5)
    ((thread),) = write_script(spec)
    asked = thread.events[3].input["messages"][0]  # type: ignore[union-attr]
    first = script.reply(spec, [HumanMessage(asked.content, id=asked.id)])
    assert first.tool_calls[0]["name"] == "write_file"
    done = ToolMessage("done", tool_call_id=f"{asked.id}-c1")
    assert script.reply(spec, [done]).tool_calls[0]["name"] == script.SEARCH_TOOL
    found = ToolMessage("found", tool_call_id=f"{asked.id}-c2")
    assert not script.reply(spec, [found]).tool_calls
    assert script.reply(spec, [HumanMessage("Summarize this.")]).content == script.SUMMARY


def test_a_missing_extra_is_one_line_that_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "find_spec", lambda _: None)
    for step in (write_script, estimate_bytes, lambda spec: build_graph(spec, None)):
        with pytest.raises(WorkloadError, match=r"pip install 'savermark\[deepagents\]'") as error:
            step(deep(1))
        assert "\n" not in str(error.value)


def test_what_the_agent_cannot_do_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"no \[branching\]"):
        write_script(replace(deep(1), branching=BranchingSpec(every=2)))
    tools = ToolsSpec(calls=1, output_bytes=Dist(value=10), externalize_over=5)
    with pytest.raises(WorkloadError, match="externalize_over"):
        write_script(replace(deep(1), tools=tools))


def test_the_oracle_loads_no_agent_runtime() -> None:
    program = """
import sys
from savermark.script import write_script
from savermark.spec import load_workload
for name in ("deep-agent", "published-pr7586", "published-pr7699"):
    write_script(load_workload(name, ["turns=2"])[0].spec)
print({"deepagents", "langchain_core", "langgraph"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


@pytest.mark.parametrize(("name", "expected"), [("a", 157.2e6), ("b", 335.0e6)])
def test_the_estimate_tells_the_order_of_magnitude(name: str, expected: float) -> None:
    for variant in load_workload(f"published-deepagents-{name}"):
        if variant.spec.state.messages.kind == "full":  # SQLite takes 2.4 to 3.5 times memory's
            assert expected < estimate_bytes(variant.spec) < 5 * expected
