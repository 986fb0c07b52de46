"""Playing a script on real savers leads to the state that the oracle says, at every tip."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from fix_play import OPENERS, Opener, Played, run_spec, with_run
from savermark.backends.base import Capability, Store
from savermark.graphs import build_graph
from savermark.graphs.play import aplay, play
from savermark.script import Fork, state_digest, write_script
from savermark.spec import (
    BranchingSpec,
    ConversationSpec,
    Dist,
    DurationsSpec,
    ExtraSpec,
    FanOutSpec,
    FilesSpec,
    InterruptsSpec,
    MessagesSpec,
    PayloadSpec,
    RunSpec,
    StateSpec,
    StaticSpec,
    SubgraphSpec,
    ToolsSpec,
    WorkloadSpec,
    fixed,
    load_workload,
)

#: The shipped workloads, small enough to play dozens of times.
SCALED = {
    "chat": ("turns=6", "messages.snapshot_frequency=5"),
    "tool-heavy": ("turns=2", "output_bytes.every=4", "messages.snapshot_frequency=10"),
    "branching": ("turns=6", "branching.every=3", "messages.snapshot_frequency=4"),
    "two-channels": ("turns=5", "messages.snapshot_frequency=4", "files.snapshot_frequency=3"),
    "fan-out": ("turns=3", "fan_out.width=5", "messages.snapshot_frequency=4"),
    "human-in-the-loop": ("turns=5", "messages.snapshot_frequency=7"),
    "exit-durability": ("turns=3", "messages.snapshot_frequency=9"),
    "fleet": ("threads=6", "fleet.driven=3", "conversation.turns.max=6"),
    "durations": ("turns=4", "messages.snapshot_frequency=3"),
    "tool-result-probe": ("turns=3", "output_bytes.every=4", "messages.snapshot_frequency=9"),
}
SMALL = ("threads=1", "fan_out.item_bytes=60", "file_bytes=90", "model_bytes=70")

#: Everything at once.
ALL = WorkloadSpec(
    "all",
    state=StateSpec(
        MessagesSpec("delta", 4),
        FilesSpec("delta", 3, 2, fixed(50)),
        StaticSpec(300),
        ExtraSpec(2, "delta", (2, 5), fixed(30)),
    ),
    conversation=ConversationSpec(turns=fixed(5), model_bytes=fixed(60)),
    tools=ToolsSpec(3, "parallel", Dist("mixture", small=80, large=600, every=4), 300, 100),
    branching=BranchingSpec(3, 2),
    subgraph=SubgraphSpec("persistent"),
    fan_out=FanOutSpec(3, fixed(40)),
    interrupts=InterruptsSpec(2),
    durations=DurationsSpec(2),
)


def _wrong(played: list[Played]) -> list[str]:
    return [f"{p.thread.thread_id}: {what}" for p in played for what in p.wrong()]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("api", ["sync", "async"])
@pytest.mark.parametrize("name", sorted(SCALED))
def test_shipped_workloads_keep_their_promise(
    name: str, api: str, durability: str, tmp_path: Path
) -> None:
    overrides = (*SMALL, *SCALED[name], f"api={api}", f"durability={durability}")
    for number, variant in enumerate(load_workload(name, overrides)):
        for kind, opener in OPENERS.items():
            folder = tmp_path / f"{kind}{number}"
            folder.mkdir()
            assert _wrong(run_spec(variant.spec, opener, folder)) == [], (variant.label, kind)


@pytest.mark.parametrize(
    ("durability", "fork"),
    [("sync", "regenerate"), ("async", "edit"), ("exit", "copy"), ("exit", "regenerate")],
)
@pytest.mark.parametrize("api", ["sync", "async"])
def test_everything_at_once(
    api: str, durability: str, fork: Any, store: Store, require: Any, tmp_path: Path
) -> None:
    """On each registered backend, as it opens its savers."""
    require(Capability.KEEPS)
    opener = Opener(
        lambda folder, serde: store.saver(serde), lambda folder, serde: store.asaver(serde)
    )
    spec = replace(ALL, branching=BranchingSpec(3, 2, fork))
    spec = with_run(spec, api=api, durability=durability)
    assert _wrong(run_spec(spec, opener, tmp_path)) == []


@pytest.mark.parametrize(("api", "kind"), [("sync", "sqlite"), ("async", "memory")])
def test_encrypted(api: str, kind: str, tmp_path: Path) -> None:
    spec = with_run(ALL, serializer="encrypted", api=api)
    assert _wrong(run_spec(spec, OPENERS[kind], tmp_path)) == []


def _some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@st.composite
def specs(draw: Any) -> WorkloadSpec:
    """Small specs with any mix of features."""
    return WorkloadSpec(
        "any",
        state=StateSpec(
            MessagesSpec(draw(_some("full", "delta")), draw(_some(1, 2, 3, 7, 50))),
            FilesSpec(draw(_some("none", "full", "delta")), draw(_some(1, 2, 5)), 1, fixed(20)),
            StaticSpec(draw(_some(0, 0, 40))),
            ExtraSpec(
                draw(_some(0, 1, 3)), draw(_some("full", "delta")), draw(_some((1, 4), (3,)))
            ),
        ),
        conversation=ConversationSpec(1, fixed(draw(st.integers(1, 7))), fixed(5), fixed(20)),
        tools=ToolsSpec(
            draw(st.integers(0, 3)),
            draw(_some("sequence", "parallel")),
            fixed(draw(_some(0, 30))),
            draw(_some(0, 20)),
            10,
        ),
        branching=BranchingSpec(
            draw(st.integers(0, 3)),
            draw(st.integers(1, 3)),
            draw(_some("regenerate", "edit", "copy")),
        ),
        subgraph=SubgraphSpec(draw(_some("none", "none", "call", "persistent")), draw(_some(1, 2))),
        fan_out=FanOutSpec(draw(_some(0, 0, 1, 3)), fixed(10)),
        interrupts=InterruptsSpec(draw(st.integers(0, 3)), draw(st.booleans())),
        durations=DurationsSpec(draw(_some(0, 0, 1, 2))),
        run=RunSpec(
            draw(_some("sync", "async")),
            draw(_some("sync", "async", "exit")),
            draw(_some("plain", "encrypted")),
            draw(st.booleans()),
        ),
        payload=PayloadSpec("repeat"),
    )


@settings(
    max_examples=int(os.environ.get("SAVERMARK_PLAY_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(spec=specs())
def test_any_mix_of_features(spec: WorkloadSpec, tmp_path_factory: pytest.TempPathFactory) -> None:
    opener = OPENERS[os.environ.get("SAVERMARK_PLAY_SAVER", "memory")]
    assert _wrong(run_spec(spec, opener, tmp_path_factory.mktemp("any"))) == []


class TestTips:
    """What an abandoned tip and a fork look like in the store."""

    def _history(self, spec: WorkloadSpec) -> tuple[Any, Any, InMemorySaver]:
        saver = InMemorySaver()
        graph = build_graph(spec, saver)
        (thread,) = write_script(spec)
        outcome = play(graph, saver, thread, spec, lambda number: nullcontext())
        return graph, outcome, saver

    @pytest.mark.parametrize(
        ("kind", "source"), [("regenerate", None), ("edit", "update"), ("copy", "fork")]
    )
    def test_each_kind_leaves_its_own_checkpoint(self, kind: Any, source: str | None) -> None:
        spec = WorkloadSpec(
            "x",
            conversation=ConversationSpec(turns=fixed(4)),
            branching=BranchingSpec(every=4, back=2, kind=kind),
        )
        _, _, saver = self._history(spec)
        sources = [row.metadata["source"] for row in saver.list(None)]
        # 4 turns and a fork of 3 checkpoints each; an edit stands for the fork's first two
        assert len(sources) == {"regenerate": 15, "edit": 14, "copy": 16}[kind]
        assert sources.count("input") == (4 if kind == "edit" else 5)
        assert [s for s in sources if s not in ("input", "loop")] == ([source] if source else [])

    def test_the_head_leads_back_past_the_abandoned_turns(self) -> None:
        spec = WorkloadSpec(
            "x",
            conversation=ConversationSpec(turns=fixed(4)),
            branching=BranchingSpec(every=4, back=2),
        )
        graph, outcome, _ = self._history(spec)

        def asked(tip: str) -> list[str]:
            messages = graph.get_state(outcome.tips[tip]).values["messages"]
            return [message.id for message in messages if message.type == "human"]

        assert asked("fork-1") == [f"t00000-h0000{turn}" for turn in (1, 2, 3, 4)]
        assert asked("head") == ["t00000-h00001", "t00000-h00002", "t00000-h00003-b00001"]

    @pytest.mark.parametrize("kind", ["regenerate", "edit", "copy"])
    def test_the_base_may_be_a_root(self, kind: Any) -> None:
        """In exit mode the first turn has no parent; its copy is a root too."""
        spec = WorkloadSpec(
            "x",
            state=StateSpec(MessagesSpec("full")),
            conversation=ConversationSpec(turns=fixed(2)),
            branching=BranchingSpec(every=2, kind=kind),
            run=RunSpec(durability="exit"),
        )
        graph, outcome, _ = self._history(spec)
        assert len(graph.get_state(outcome.tips["head"]).values["messages"]) == 4

    def test_an_open_question_can_still_be_answered(self) -> None:
        from langgraph.types import Command

        spec = WorkloadSpec("x", tools=ToolsSpec(1), interrupts=InterruptsSpec(5, resume=False))
        graph, outcome, _ = self._history(spec)
        assert graph.get_state(outcome.tips["head"]).next == ("approve",)
        config = {"configurable": {"thread_id": "t00000"}}
        values = graph.invoke(Command(resume="yes"), config)
        assert values["decision"] == "yes"
        assert len(values["messages"][-1].content) == 400


class TestDurations:
    SPEC = WorkloadSpec(
        "x",
        state=StateSpec(MessagesSpec("full")),
        conversation=ConversationSpec(turns=fixed(3)),
        durations=DurationsSpec(every=1),
    )

    def test_a_leaf_is_a_copy_of_its_parent(self) -> None:
        saver = InMemorySaver()
        graph = build_graph(self.SPEC, saver)
        (thread,) = write_script(self.SPEC)
        play(graph, saver, thread, self.SPEC, lambda number: nullcontext())
        blobs = len(saver.blobs)
        leaves = [row for row in saver.list(None) if "run_durations" in row.metadata]
        assert [row.metadata["run_durations"] for row in leaves] == [
            {f"t00000-run0000{number}": 1 + number} for number in (3, 2, 1)
        ]
        for leaf in leaves:
            parent = saver.get_tuple(leaf.parent_config)  # type: ignore[arg-type]
            assert parent is not None
            assert leaf.checkpoint["channel_versions"] == parent.checkpoint["channel_versions"]
            assert leaf.checkpoint["channel_values"] == parent.checkpoint["channel_values"]
            assert leaf.checkpoint["id"] > parent.checkpoint["id"]
            assert leaf.metadata["source"] == "update"
            assert leaf.metadata["step"] == parent.metadata["step"] + 1
            run_id = parent.metadata["run_id"]  # type: ignore[typeddict-item]
            assert leaf.metadata["writes"] == {  # type: ignore[typeddict-item]
                "runtime_run_duration": {"run_ids": [run_id], "message_ids": []}
            }
        without = replace(self.SPEC, durations=DurationsSpec())
        plain = InMemorySaver()
        play(
            build_graph(without, plain),
            plain,
            write_script(without)[0],
            without,
            lambda number: nullcontext(),
        )
        assert len(plain.blobs) == blobs


class TestRunIds:
    @pytest.mark.parametrize("run_id", [True, False])
    def test_in_metadata_when_asked_for(self, run_id: bool) -> None:
        spec = WorkloadSpec(
            "x",
            conversation=ConversationSpec(turns=fixed(2)),
            run=RunSpec(run_id=run_id),
            branching=BranchingSpec(every=2, kind="edit"),
        )
        saver = InMemorySaver()
        (thread,) = write_script(spec)
        play(build_graph(spec, saver), saver, thread, spec, lambda number: nullcontext())
        found = {row.metadata.get("run_id") for row in saver.list(None)}
        assert found == ({f"t00000-run0000{n}" for n in (1, 2, 3)} if run_id else {None})


class _Clock:
    """Notes when a turn starts and ends."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, int]] = []

    @contextmanager
    def __call__(self, number: int) -> Iterator[None]:
        self.notes.append(("start", number))
        try:
            yield
        finally:
            self.notes.append(("end", number))


class TestClock:
    def test_is_entered_around_each_run(self) -> None:
        spec = WorkloadSpec(
            "x",
            conversation=ConversationSpec(turns=fixed(3)),
            branching=BranchingSpec(every=2, kind="copy"),
            interrupts=InterruptsSpec(every=2),
            durations=DurationsSpec(every=1),
        )
        (thread,) = write_script(spec)
        assert any(isinstance(event, Fork) for event in thread.events)
        clock = _Clock()
        saver = InMemorySaver()
        play(build_graph(spec, saver), saver, thread, spec, clock)
        assert clock.notes == [(edge, n) for n in (1, 2, 3, 4) for edge in ("start", "end")]

    @pytest.mark.parametrize("api", ["sync", "async"])
    def test_ends_when_a_call_fails(self, api: Any) -> None:
        class Full(InMemorySaver):
            def put(self, *args: Any, **options: Any) -> Any:
                raise OSError("disk full")

        spec = WorkloadSpec("x", run=RunSpec(api=api))
        saver = Full()
        graph = build_graph(spec, saver)
        (thread,) = write_script(spec)
        clock = _Clock()
        with pytest.raises(OSError, match="disk full"):
            if api == "sync":
                play(graph, saver, thread, spec, clock)
            else:
                asyncio.run(aplay(graph, saver, thread, spec, clock))
        assert clock.notes == [("start", 1), ("end", 1)]


class TestDeterminism:
    CODE = (
        "import json, sys\n"
        "from hashlib import sha256\n"
        "from pathlib import Path\n"
        "from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer\n"
        "from fix_play import OPENERS, run_spec\n"
        "from test_play import ALL\n"
        "(played,) = run_spec(ALL, OPENERS['memory'], Path())\n"
        "dumps = JsonPlusSerializer().dumps_typed\n"
        "print(json.dumps({tip: sha256(dumps(snapshot.values)[1]).hexdigest()\n"
        "                  for tip, snapshot in played.snapshots.items()}))\n"
    )

    def test_two_processes_store_the_same_bytes(self) -> None:
        """Not only the digest: the serialized state, message objects and all."""
        seen = []
        for seed in ("1", "2"):
            env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)}
            done = subprocess.run(
                [sys.executable, "-c", self.CODE],
                capture_output=True,
                text=True,
                check=True,
                env=env,
            )
            seen.append(json.loads(done.stdout))
        assert seen[0] == seen[1]
        assert set(seen[0]) == {"head", "fork-1"}

    def test_threads_do_not_depend_on_their_order(self) -> None:
        """One graph serves all threads: nothing may be remembered between them."""
        spec = replace(ALL, conversation=replace(ALL.conversation, threads=2))
        threads = write_script(spec)
        for order in (threads, threads[::-1]):
            saver = InMemorySaver()
            graph = build_graph(spec, saver)
            for thread in order:
                outcome = play(graph, saver, thread, spec, lambda number: nullcontext())
                state = graph.get_state(outcome.tips["head"])
                assert state_digest(state.values) == thread.tips["head"].digest
