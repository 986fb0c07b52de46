"""The agent's graph: its channels, its steps, and what one turn of each feature stores."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver

from savermark.errors import WorkloadError
from savermark.graphs import build_graph
from savermark.graphs.channels import extend, extend_all, merge_all_files, merge_files
from savermark.graphs.messages import to_langchain, to_state
from savermark.graphs.play import play
from savermark.graphs.serde import make_serde
from savermark.script import Message, estimate_bytes, write_script
from savermark.spec import (
    ConversationSpec,
    ExtraSpec,
    FanOutSpec,
    FilesSpec,
    InterruptsSpec,
    MessagesSpec,
    RunSpec,
    StateSpec,
    StaticSpec,
    SubgraphSpec,
    ToolsSpec,
    WorkloadSpec,
    fixed,
)

ONE_TURN = ConversationSpec(turns=fixed(1))
EVERYTHING = StateSpec(
    MessagesSpec("delta", 7),
    FilesSpec("delta", 9),
    StaticSpec(100),
    ExtraSpec(3, "delta", (2, 5)),
)


def _play(spec: WorkloadSpec) -> InMemorySaver:
    saver = InMemorySaver()
    graph = build_graph(spec, saver)
    for thread in write_script(spec):
        play(graph, saver, thread, spec, lambda number: nullcontext())
    return saver


def _checkpoints(saver: InMemorySaver) -> Counter[str]:
    """Checkpoints by the node that owns the namespace; "" is the graph itself."""
    return Counter(
        {
            namespace.split(":")[0]: len(rows)
            for spaces in saver.storage.values()
            for namespace, rows in spaces.items()
        }
    )


class TestChannels:
    def test_delta_with_the_frequencies_of_the_spec(self) -> None:
        graph = build_graph(WorkloadSpec(name="x", state=EVERYTHING), None)
        found = {
            name: channel.snapshot_frequency
            for name, channel in graph.channels.items()
            if isinstance(channel, DeltaChannel)
        }
        assert found == {"messages": 7, "files": 9, "extra_00": 2, "extra_01": 5, "extra_02": 2}

    def test_full(self) -> None:
        state = StateSpec(MessagesSpec("full"), FilesSpec("full"), extra=ExtraSpec(2, "full"))
        spec = WorkloadSpec(name="x", state=state, fan_out=FanOutSpec(2))
        channels = build_graph(spec, None).channels
        for name in ("messages", "files", "extra_00", "extra_01", "findings"):
            assert isinstance(channels[name], BinaryOperatorAggregate), name

    def test_only_what_the_spec_asks_for(self) -> None:
        graph = build_graph(WorkloadSpec(name="x"), None)
        named = {name for name in graph.channels if ":" not in name and not name.startswith("__")}
        assert named == {"messages"}
        assert set(graph.nodes) == {"__start__", "model"}

    @given(st.lists(st.lists(st.integers(), max_size=3), max_size=8), st.integers(0, 8))
    def test_lists_grow_the_same_in_any_batching(self, writes: list[list[int]], cut: int) -> None:
        at_once = extend_all([0], writes)
        assert extend_all(extend_all([0], writes[:cut]), writes[cut:]) == at_once
        one_by_one = [0]
        for write in writes:
            one_by_one = extend(one_by_one, write)
        assert one_by_one == at_once

    @given(
        st.lists(st.dictionaries(st.text(max_size=2), st.text(max_size=2)), max_size=8),
        st.integers(0, 8),
    )
    def test_files_merge_the_same_in_any_batching(
        self, writes: list[dict[str, str]], cut: int
    ) -> None:
        at_once = merge_all_files({"a": "0"}, writes)
        assert merge_all_files(merge_all_files({"a": "0"}, writes[:cut]), writes[cut:]) == at_once
        one_by_one = {"a": "0"}
        for write in writes:
            one_by_one = merge_files(one_by_one, write)
        assert list(one_by_one.items()) == list(at_once.items())

    def test_reducers_leave_their_input_alone(self) -> None:
        value, files = [1], {"a": "1"}
        extend(value, [2])
        extend_all(value, [[2]])
        merge_files(files, {"b": "2"})
        merge_all_files(files, [{"b": "2"}])
        assert (value, files) == ([1], {"a": "1"})


class TestSteps:
    """Checkpoints of one turn: one for the input, one before each superstep, one at the end."""

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            (WorkloadSpec("x", conversation=ONE_TURN), {"": 3}),
            (WorkloadSpec("x", conversation=ONE_TURN, state=EVERYTHING), {"": 3}),
            (WorkloadSpec("x", conversation=ONE_TURN, tools=ToolsSpec(3)), {"": 9}),
            (WorkloadSpec("x", conversation=ONE_TURN, tools=ToolsSpec(3, "parallel")), {"": 5}),
            (WorkloadSpec("x", conversation=ONE_TURN, fan_out=FanOutSpec(20)), {"": 4}),
            (WorkloadSpec("x", conversation=ONE_TURN, interrupts=InterruptsSpec(1)), {"": 4}),
            (WorkloadSpec("x", conversation=ONE_TURN, interrupts=InterruptsSpec(2)), {"": 3}),
            (
                WorkloadSpec("x", conversation=ONE_TURN, subgraph=SubgraphSpec("call", 3)),
                {"": 4, "research": 5},
            ),
        ],
    )
    def test_checkpoints(self, spec: WorkloadSpec, expected: dict[str, int]) -> None:
        assert _checkpoints(_play(spec)) == expected

    def test_a_parallel_turn_sends_each_call_as_a_task(self) -> None:
        spec = WorkloadSpec("x", conversation=ONE_TURN, tools=ToolsSpec(12, "parallel"))
        saver = _play(spec)
        rows = [row for writes in saver.writes.values() for row in writes.values()]
        sends = [row for row in rows if row[1] == "__pregel_tasks"]
        results = [row for row in rows if row[3].startswith("~__pregel_push")]
        assert len(sends) == 12
        assert len({row[0] for row in results}) == 12

    def test_a_call_gets_a_fresh_namespace_and_a_persistent_subgraph_one(self) -> None:
        talk = ConversationSpec(turns=fixed(4))
        fresh = _play(WorkloadSpec("x", conversation=talk, subgraph=SubgraphSpec("call")))
        kept = _play(WorkloadSpec("x", conversation=talk, subgraph=SubgraphSpec("persistent")))
        assert len(fresh.storage["t00000"]) == 1 + 4
        assert set(kept.storage["t00000"]) == {"", "research"}

    def test_a_subgraph_is_handed_the_whole_conversation(self) -> None:
        """Which is why it grows with the square of the turns, even with delta channels."""

        def stored(turns: int) -> int:
            talk = ConversationSpec(turns=fixed(turns), model_bytes=fixed(2_000))
            saver = _play(WorkloadSpec("x", conversation=talk, subgraph=SubgraphSpec("call")))
            return sum(
                len(value)
                for (_, space, name, _), (_, value) in saver.blobs.items()
                if space and name == "__start__"
            )

        assert stored(16) > 3.5 * stored(8)

    def test_persistent_notes_stay(self) -> None:
        spec = WorkloadSpec(
            "x",
            conversation=ConversationSpec(turns=fixed(3)),
            subgraph=SubgraphSpec("persistent", 2),
        )
        saver = InMemorySaver()
        graph = build_graph(spec, saver)
        (thread,) = write_script(spec)
        play(graph, saver, thread, spec, lambda number: nullcontext())
        inner = graph.nodes["research"].bound
        config: Any = {"configurable": {"thread_id": "t00000", "checkpoint_ns": "research"}}
        messages = inner.copy({"checkpointer": saver}).get_state(config).values["messages"]
        assert [m.id for m in messages if "-s" in m.id] == [
            f"t00000-h{turn:05d}-s{step}" for turn in (1, 2, 3) for step in (0, 1)
        ]


class TestEstimates:
    @pytest.mark.parametrize("kind", ["full", "delta"])
    @pytest.mark.parametrize(
        "parts",
        [
            {},
            {"tools": ToolsSpec(2)},
            {"tools": ToolsSpec(4, "parallel"), "run": RunSpec(durability="exit")},
            {"subgraph": SubgraphSpec("call")},
            {"fan_out": FanOutSpec(6)},
        ],
        ids=["chat", "tools", "exit", "subgraph", "fan-out"],
    )
    def test_order_of_magnitude(self, kind: Any, parts: dict[str, Any]) -> None:
        spec = WorkloadSpec(
            "x",
            state=StateSpec(MessagesSpec(kind, 10), FilesSpec(kind, 5)),
            conversation=ConversationSpec(turns=fixed(15)),
            **parts,
        )
        saver = _play(spec)
        size = sum(len(value) for _, value in saver.blobs.values())
        size += sum(len(row[2][1]) for writes in saver.writes.values() for row in writes.values())
        size += sum(
            len(row[0][1]) + len(row[1][1])
            for spaces in saver.storage.values()
            for rows in spaces.values()
            for row in rows.values()
        )
        # SQLite stores full channels with each checkpoint: the estimate is of the larger layout
        assert 0.7 < estimate_bytes(spec) / size < 6


class TestMessages:
    def test_each_type(self) -> None:
        assert to_langchain(Message("human", "h", "x")) == HumanMessage("x", id="h")
        assert to_langchain(Message("system", "s", "x")).type == "system"
        tool = to_langchain(Message("tool", "r", "x", tool_call_id="c", name="search"))
        assert (tool.type, tool.name, getattr(tool, "tool_call_id", "")) == ("tool", "search", "c")
        call = {"name": "search", "args": {"q": "x"}, "id": "c"}
        assert to_langchain(Message("ai", "a", "", (call,))) == AIMessage(
            "", tool_calls=[{**call, "type": "tool_call"}], id="a"
        )

    def test_a_state_update(self) -> None:
        update = to_state({"messages": [Message("human", "h", "x")], "n": 3, "list": ["a"]})
        assert update == {"messages": [HumanMessage("x", id="h")], "n": 3, "list": ["a"]}


class TestSerializer:
    def test_plain_is_the_savers_own(self) -> None:
        assert make_serde(WorkloadSpec("x")) is None

    def test_encrypted_reads_messages_back_in_another_serializer(self) -> None:
        spec = WorkloadSpec("x", run=RunSpec(serializer="encrypted"))
        first, second = make_serde(spec), make_serde(spec)
        assert first is not None
        assert second is not None
        talk = [HumanMessage("secret words", id="h"), AIMessage("answer", id="a")]
        kind, data = first.dumps_typed(talk)
        assert kind == "msgpack+aes"
        assert b"secret words" not in data
        assert second.loads_typed((kind, data)) == talk


def test_an_unknown_shape() -> None:
    with pytest.raises(WorkloadError, match="unknown graph 'agnet': did you mean 'agent'"):
        build_graph(WorkloadSpec("x", graph="agnet"), None)
