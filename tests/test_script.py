"""The oracle: plain, deterministic, and independent of the runtime it judges."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from savermark.errors import WorkloadError
from savermark.graphs.messages import to_langchain
from savermark.script import (
    Duration,
    Fork,
    Message,
    Turn,
    dialogue,
    estimate_bytes,
    state_digest,
    thread_turns,
    write_script,
)
from savermark.script.dialogue import Cue
from savermark.spec import (
    BranchingSpec,
    ConversationSpec,
    Dist,
    DurationsSpec,
    FleetSpec,
    InterruptsSpec,
    MessagesSpec,
    StateSpec,
    StaticSpec,
    ToolsSpec,
    WorkloadSpec,
    fixed,
    load_workload,
)

CHAT = WorkloadSpec(name="x", conversation=ConversationSpec(turns=fixed(6)))


def _numbers(spec: WorkloadSpec) -> list[object]:
    """Events as (kind, number) for reading."""
    (thread,) = write_script(spec)
    return [
        ("duration", event.run_id[-2:])
        if isinstance(event, Duration)
        else (type(event).__name__.lower(), event.number)
        for event in thread.events
    ]


class TestWithoutTheRuntime:
    def test_needs_no_langgraph(self) -> None:
        code = (
            "import sys\n"
            "from savermark.script import write_script, estimate_bytes\n"
            "from savermark.spec import load_workload\n"
            "for name in ('chat', 'branching', 'human-in-the-loop'):\n"
            "    for variant in load_workload(name):\n"
            "        write_script(variant.spec), estimate_bytes(variant.spec)\n"
            "print([name for name in sys.modules if name.startswith(('langgraph', 'langchain'))])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"

    @pytest.mark.parametrize("name", ["branching", "human-in-the-loop", "tool-heavy"])
    def test_twice_the_same(self, name: str) -> None:
        spec = load_workload(name)[0].spec
        assert write_script(spec) == write_script(spec)

    def test_the_seed_decides(self) -> None:
        other = replace(CHAT, payload=replace(CHAT.payload, seed=2))
        assert write_script(CHAT)[0].tips["head"] != write_script(other)[0].tips["head"]

    def test_the_mode_does_not(self) -> None:
        full = replace(CHAT, state=StateSpec(messages=MessagesSpec("full")))
        assert write_script(CHAT) == write_script(full)

    def test_an_unknown_graph(self) -> None:
        with pytest.raises(WorkloadError, match="unknown graph"):
            write_script(replace(CHAT, graph="agnet"))


class TestEvents:
    def test_turns_count_from_one(self) -> None:
        (thread,) = write_script(CHAT)
        assert thread.thread_id == "t00000"
        assert thread.turns == 6
        assert [event.number for event in thread.events] == [1, 2, 3, 4, 5, 6]
        assert len({event.run_id for event in thread.events}) == 6

    def test_the_static_channel_comes_once(self) -> None:
        spec = replace(CHAT, state=StateSpec(static=StaticSpec(500)))
        (thread,) = write_script(spec)
        assert [len(event.input.get("static", "")) for event in thread.events] == [500, *5 * [0]]

    def test_a_branch_starts_so_many_turns_back(self) -> None:
        spec = replace(CHAT, branching=BranchingSpec(every=4, back=2))
        (thread,) = write_script(spec)
        fork = thread.events[4]
        assert isinstance(fork, Fork)
        base = next(event for event in thread.events if fork.base in event.marks)
        assert (base.number, fork.number) == (2, 5)
        assert "fork-1" in thread.events[3].marks
        assert set(thread.tips) == {"head", "fork-1"}
        assert thread.turns == 7

    def test_back_counts_along_the_branch(self) -> None:
        """After two forks the way back leads over runs of the branch, not of the abandoned tip."""
        spec = replace(CHAT, branching=BranchingSpec(every=3, back=2))
        (thread,) = write_script(spec)
        bases = {
            event.number: next(e.number for e in thread.events if event.base in e.marks)
            for event in thread.events
            if isinstance(event, Fork)
        }
        # runs: 1 2 3, fork 4 from 1; then 5 6 7 on 4, fork 8 from 5 (back over 7 and 6)
        assert bases == {4: 1, 8: 5}

    def test_never_before_the_first_turn(self) -> None:
        spec = replace(CHAT, branching=BranchingSpec(every=1, back=9))
        (thread,) = write_script(spec)
        assert isinstance(thread.events[0], Turn)
        assert isinstance(thread.events[1], Turn)  # after turn 1 there is nothing to go back to
        forks = [event for event in thread.events if isinstance(event, Fork)]
        assert len(forks) == 5
        assert len({event.base for event in forks}) == 5  # each mark is a name of its own
        assert all(
            fork.base in thread.events[0].marks for fork in forks
        )  # all from the end of turn 1

    @pytest.mark.parametrize("kind", ["regenerate", "edit", "copy"])
    def test_only_an_edit_changes_the_words(self, kind: str) -> None:
        spec = replace(CHAT, branching=BranchingSpec(every=3, kind=kind))  # type: ignore[arg-type]
        (thread,) = write_script(spec)
        asked, again = (thread.events[n].input["messages"][0] for n in (2, 3))
        assert asked.id != again.id
        assert (asked.content != again.content) == (kind == "edit")

    def test_each_tip_differs(self) -> None:
        spec = replace(CHAT, branching=BranchingSpec(every=1))
        (thread,) = write_script(spec)
        assert len({tip.digest for tip in thread.tips.values()}) == len(thread.tips) == 6

    def test_questions_are_answered(self) -> None:
        spec = replace(CHAT, interrupts=InterruptsSpec(every=2))
        (thread,) = write_script(spec)
        assert [len(event.answers) for event in thread.events] == [0, 1, 0, 1, 0, 1]
        assert thread.tips["head"].interrupts == 0

    def test_the_last_question_may_stay_open(self) -> None:
        spec = replace(CHAT, interrupts=InterruptsSpec(every=4, resume=False))
        (thread,) = write_script(spec)
        assert thread.turns == 4
        assert [event.answers for event in thread.events] == [()] * 4
        assert thread.tips["head"].next == ("approve",)
        assert thread.tips["head"].interrupts == 1

    def test_a_thread_too_short_to_be_asked(self) -> None:
        spec = replace(CHAT, interrupts=InterruptsSpec(every=9, resume=False))
        (thread,) = write_script(spec)
        assert (thread.turns, thread.tips["head"].next) == (6, ())

    def test_durations_follow_their_run(self) -> None:
        spec = replace(CHAT, durations=DurationsSpec(every=3), branching=BranchingSpec(every=5))
        assert _numbers(spec) == [
            ("turn", 1),
            ("turn", 2),
            ("turn", 3),
            ("duration", "03"),
            ("turn", 4),
            ("turn", 5),
            ("fork", 6),
            ("duration", "06"),
            ("turn", 7),
        ]

    def test_no_duration_while_a_question_is_open(self) -> None:
        spec = replace(
            CHAT, durations=DurationsSpec(every=1), interrupts=InterruptsSpec(3, resume=False)
        )
        assert _numbers(spec)[-1] == ("turn", 6)


class TestFleet:
    SPEC = WorkloadSpec(
        name="x",
        conversation=ConversationSpec(
            threads=50, turns=Dist("lognormal", median=6, sigma=1.0, min=1, max=60)
        ),
        fleet=FleetSpec(driven=8),
    )

    def test_clones_follow_the_driven_threads(self) -> None:
        threads = write_script(self.SPEC)
        assert [thread.thread_id for thread in threads] == [f"t{n:05d}" for n in range(50)]
        assert [thread.source for thread in threads[:8]] == [None] * 8
        assert {thread.source for thread in threads[8:]} == {f"t{n:05d}" for n in range(8)}
        by_id = {thread.thread_id: thread for thread in threads}
        for thread in threads[8:]:
            source = by_id[str(thread.source)]
            assert thread.events == ()
            assert (thread.turns, thread.tips) == (source.turns, source.tips)

    def test_turns_are_those_of_the_distribution(self) -> None:
        turns = thread_turns(self.SPEC)
        assert len(turns) == 8
        assert [thread.turns for thread in write_script(self.SPEC)][:8] == turns
        assert max(turns) > 4 * min(turns)

    def test_all_are_driven_by_default(self) -> None:
        threads = write_script(replace(self.SPEC, fleet=FleetSpec()))
        assert all(thread.source is None and thread.events for thread in threads)


class TestDialogue:
    SPEC = WorkloadSpec(
        name="x",
        tools=ToolsSpec(
            calls=2, output_bytes=Dist("mixture", small=100, large=900, every=3), preview_bytes=50
        ),
    )

    @pytest.mark.parametrize("cue", [Cue("t00000", 1, 0), Cue("t00012", 40_000, 3)])
    def test_an_id_says_it_all(self, cue: Cue) -> None:
        assert Cue.parse(str(cue)) == cue

    def test_the_model_decides_from_the_conversation(self) -> None:
        """The same conversation gives the same answer, however often it was asked before."""
        talk = [dialogue.human(self.SPEC, Cue("t00000", 3, 0))]
        first = dialogue.reply(self.SPEC, talk)
        assert dialogue.reply(self.SPEC, talk) == first
        talk += [first, dialogue.tool_result(self.SPEC, first.tool_calls[0])]
        second = dialogue.reply(self.SPEC, talk)
        talk += [second, dialogue.tool_result(self.SPEC, second.tool_calls[0])]
        final = dialogue.reply(self.SPEC, talk)
        assert [len(m.tool_calls) for m in (first, second, final)] == [1, 1, 0]
        assert len(final.content) == 400
        assert dialogue.reply(self.SPEC, talk[:1]) == first

    def test_plain_and_real_messages_are_read_alike(self) -> None:
        talk = [dialogue.human(self.SPEC, Cue("t00000", 3, 0))]
        talk.append(dialogue.reply(self.SPEC, talk))
        real = [to_langchain(message) for message in talk]
        assert dialogue.last_human(real) == dialogue.last_human(talk)

    def test_outputs_follow_the_mixture_over_turns(self) -> None:
        sizes = [
            len(dialogue.tool_result(self.SPEC, {"name": "search", "id": f"{cue}-c{call}"}).content)
            for cue in (Cue("t00000", turn, 0) for turn in range(1, 4))
            for call in range(2)
        ]
        assert sizes == [100, 100, 900, 100, 100, 900]

    def test_a_long_output_is_kept_outside(self) -> None:
        spec = replace(self.SPEC, tools=replace(self.SPEC.tools, externalize_over=500))
        call = {"name": "search", "id": "t00000-h00002-c0"}  # the third output, a large one
        inside = dialogue.tool_result(self.SPEC, call).content
        preview, _, reference = dialogue.tool_result(spec, call).content.partition("\n[")
        assert preview == inside[:50]
        assert reference == "900 bytes in all: tool-results/t00000-h00002-c0.txt]"
        short = {"name": "search", "id": "t00000-h00001-c0"}
        assert dialogue.tool_result(spec, short) == dialogue.tool_result(self.SPEC, short)

    def test_nobody_asked(self) -> None:
        with pytest.raises(ValueError, match="no human message"):
            dialogue.last_human([])


class TestDigest:
    TALK = (
        Message("human", "h1", "hello"),
        Message("ai", "a1", "", ({"name": "search", "args": {"q": "x"}, "id": "c1"},)),
        Message("tool", "r1", "found", tool_call_id="c1", name="search"),
    )

    def test_plain_equals_real(self) -> None:
        real = [to_langchain(message) for message in self.TALK]
        assert state_digest({"messages": real}) == state_digest({"messages": list(self.TALK)})

    def test_what_a_runtime_adds_does_not_count(self) -> None:
        bare = AIMessage("hi", id="a1")
        full = AIMessage(
            "hi",
            id="a1",
            response_metadata={"model": "x"},
            usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        )
        assert state_digest({"messages": [bare]}) == state_digest({"messages": [full]})
        old = {"files": {"a": {"content": "x", "modified_at": "2024"}}}
        new = {"files": {"a": {"content": "x", "modified_at": "2025"}}}
        assert state_digest(old) == state_digest(new)

    @pytest.mark.parametrize(
        "other",
        [
            HumanMessage("hello", id="h2"),
            HumanMessage("hello!", id="h1"),
            AIMessage("hello", id="h1"),
            HumanMessage("hello", id="h1", name="bob"),
            ToolMessage("hello", id="h1", tool_call_id="c"),
        ],
    )
    def test_what_counts(self, other: object) -> None:
        one = HumanMessage("hello", id="h1")
        assert state_digest({"messages": [one]}) != state_digest({"messages": [other]})

    def test_order_counts_in_lists_and_not_in_dictionaries(self) -> None:
        assert state_digest({"a": [1, 2]}) != state_digest({"a": [2, 1]})
        assert state_digest({"a": 1, "b": 2}) == state_digest({"b": 2, "a": 1})

    def test_an_empty_channel_is_an_absent_one(self) -> None:
        assert state_digest({"a": [], "b": {}, "c": None, "d": ""}) == state_digest({})
        assert state_digest({"a": 0}) != state_digest({})
        assert state_digest({"a": False}) != state_digest({"a": 0})

    def test_bytes_and_text_differ(self) -> None:
        assert state_digest({"a": b"61"}) != state_digest({"a": "61"})

    def test_a_value_without_canonical_form(self) -> None:
        with pytest.raises(TypeError, match="no canonical form for object"):
            state_digest({"a": object()})


class TestEstimate:
    @pytest.mark.parametrize(("kind", "growth"), [("full", 4.0), ("delta", 2.0)])
    def test_growth(self, kind: str, growth: float) -> None:
        """Twice the turns: four times the bytes in full mode, twice in delta mode."""

        def size(turns: int) -> int:
            return estimate_bytes(
                WorkloadSpec(
                    name="x",
                    state=StateSpec(messages=MessagesSpec(kind, 10**6)),  # type: ignore[arg-type]
                    conversation=ConversationSpec(turns=fixed(turns)),
                )
            )

        assert size(4_000) / size(2_000) == pytest.approx(growth, rel=0.05)

    def test_threads_and_clones_add_up(self) -> None:
        one = estimate_bytes(CHAT)
        many = replace(
            CHAT, conversation=replace(CHAT.conversation, threads=10), fleet=FleetSpec(driven=2)
        )
        assert estimate_bytes(many) == 10 * one
