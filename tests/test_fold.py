"""Folding: values read as the runtime reads them, stored onto the checkpoint, or refused."""

from __future__ import annotations

import asyncio
import itertools
import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

import tiny_graph
from fix_threads import Kept, at, clone, history, snapshot
from savermark.errors import BackendError, UsageError
from savermark.history.image import COUNTERS, COUNTERS_OF_OLD, CheckpointRow
from savermark.retention.apply import apply_thread
from savermark.retention.fold import graph_fold, load_graph, reducer_fold, without_counts
from savermark.retention.policy import parse_policy
from savermark.retention.records import Fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from savermark.retention.fold import Materializer
    from savermark.retention.records import Applied

NUMBERS = itertools.count()
COMPACT = parse_policy("compact")
extend = tiny_graph.extend


def fresh() -> str:
    return f"fold-{next(NUMBERS)}"


def compact(kept: Kept, thread: str, fold: Materializer | None, **more: Any) -> Applied:
    return apply_thread(kept.rows, thread, COMPACT, fold=fold, **more)


def say(graph: Any, thread: str, words: str, **more: Any) -> None:
    for word in words:
        graph.invoke({"said": [word]}, at(thread), **more)


class Both(TypedDict):
    said: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
    seen: Annotated[dict[str, int], DeltaChannel(lambda state, writes: merged(state, writes))]
    count: int


def merged(state: dict[str, int] | None, writes: Sequence[dict[str, int]]) -> dict[str, int]:
    found = dict(state or {})
    for write in writes:
        found.update(write)
    return found


def one_node(state: Any, node: Callable[[Any], Any], saver: Any) -> Any:
    graph = StateGraph(state)
    graph.add_node("n", node)
    graph.add_edge(START, "n")
    graph.add_edge("n", END)
    return graph.compile(checkpointer=saver)


def both(saver: Any) -> Any:
    def node(state: Both) -> Any:
        size = len(state["said"])
        return {"said": [f"a{size}"], "seen": {f"k{size}": size}, "count": size}

    return one_node(Both, node, saver)


# --- whole threads ------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_one_checkpoint_is_left_and_nothing_has_changed(kept: Kept, durability: str) -> None:
    """facts R14: value equal, the next turns right, the history complete."""
    graph, thread = both(kept.saver), fresh()
    say(graph, thread, "abcd", durability=durability)
    control = clone(kept, thread)
    before = graph.get_state(at(thread))
    applied = compact(kept, thread, graph_fold(graph, kept.saver))
    assert not applied.refused and applied.deleted["checkpoints"] > 0
    image = kept.rows.image(thread)
    (head,) = image.checkpoints
    assert head.parent_id is None and not head.counted & {"said", "seen"}  # T15
    assert head.snapshots == {"said", "seen"}
    after = graph.get_state(at(thread))
    assert (after.values, after.next) == (before.values, before.next)
    assert after.metadata["step"] == before.metadata["step"]
    for name in (thread, control):
        say(graph, name, "efgh", durability=durability)
    assert graph.get_state(at(thread)).values == graph.get_state(at(control)).values
    states = [state.values for state in graph.get_state_history(at(thread))]
    assert states == [s.values for s in graph.get_state_history(at(control))][: len(states)]
    assert compact(kept, thread, graph_fold(graph, kept.saver)).deleted
    assert compact(kept, thread, graph_fold(graph, kept.saver)).plan.empty


def test_snapshot_and_then_keep_latest_come_to_the_same_as_compact(kept: Kept) -> None:
    """In between, a run that read the head before finds the history that it then asks for."""
    graph, thread = both(kept.saver), fresh()
    say(graph, thread, "abcd")
    control = clone(kept, thread)
    found = kept.saver.get_tuple(at(thread))
    assert found is not None and not {"said", "seen"} & found.checkpoint["channel_values"].keys()

    def asked() -> Any:
        names = ["said", "seen"]
        return kept.saver.get_delta_channel_history(config=found.config, channels=names)

    before, rows = asked(), kept.rows.image(thread).rows
    states = [state.values for state in graph.get_state_history(at(thread))]
    fold = graph_fold(graph, kept.saver)
    stored = apply_thread(kept.rows, thread, parse_policy("snapshot"), fold=fold)
    assert not stored.refused and not any(stored.deleted.values())
    assert kept.rows.image(thread).rows >= rows
    assert asked() == before
    assert [state.values for state in graph.get_state_history(at(thread))] == states
    assert apply_thread(kept.rows, thread, parse_policy("snapshot"), fold=fold).plan.empty
    assert apply_thread(kept.rows, thread, parse_policy("keep-latest")).deleted["checkpoints"]
    assert not compact(kept, control, fold).refused
    left = [replace(kept.rows.image(name), thread_id="") for name in (thread, control)]
    assert left[0] == left[1] and len(left[0].checkpoints) == 1
    assert asked() != before  # what compact would have done to that run


def test_kept_turns_are_folded_one_by_one(kept: Kept) -> None:
    graph, thread = both(kept.saver), fresh()
    say(graph, thread, "abc")
    control = clone(kept, thread)
    policy = parse_policy("compact,keep-turns=1")
    applied = apply_thread(kept.rows, thread, policy, fold=graph_fold(graph, kept.saver))
    names = applied.plan.kept[""]
    assert names == names.targets and len(names) == 4
    for name in names:
        values = [graph.get_state(at(each, name)).values for each in (thread, control)]
        assert values[0] == values[1]


class Plain(TypedDict):
    said: Annotated[list[str], operator.add]


class Delta(TypedDict):
    said: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=50)]


def answer(state: Any) -> Any:
    return {"said": [f"a{len(state['said'])}"]}


def test_a_plain_beginning_is_the_seed_and_a_way_back_reads_too(kept: Kept) -> None:
    """T16, facts R16."""
    thread = fresh()
    plain, delta = (one_node(state, answer, kept.saver) for state in (Plain, Delta))
    say(plain, thread, "ab")
    say(delta, thread, "cd")
    before = delta.get_state(at(thread)).values
    other = clone(kept, thread)
    for name, graph in ((thread, delta), (other, plain)):
        assert not compact(kept, name, graph_fold(graph, kept.saver)).refused
        assert len(kept.rows.image(name).checkpoints) == 1
        assert graph.get_state(at(name)).values == before
        say(graph, name, "e")
        assert graph.get_state(at(name)).values["said"] == [*before["said"], "e", "a9"]


def nested(saver: Any) -> Any:
    """A subgraph whose own delta channel has some past when it stops to ask."""
    inner = StateGraph(Delta)
    inner.add_node("pre", answer)
    inner.add_node("ask", lambda state: {"said": [f"got {interrupt('?')}"]})
    inner.add_edge(START, "pre")
    inner.add_edge("pre", "ask")
    inner.add_edge("ask", END)
    outer = StateGraph(Delta)
    outer.add_node("sub", inner.compile())
    outer.add_edge(START, "sub")
    outer.add_edge("sub", END)
    return outer.compile(checkpointer=saver)


def test_a_waiting_subgraph_is_folded_too(kept: Kept) -> None:
    graph, thread = nested(kept.saver), fresh()
    say(graph, thread, "a")
    control = clone(kept, thread)
    applied = compact(kept, thread, graph_fold(graph, kept.saver))
    spaces = {fold.checkpoint_ns for fold in applied.plan.folds}
    assert len(spaces) == 2 and len(kept.rows.image(thread).checkpoints) == 2
    assert graph.get_state(at(thread)).interrupts == graph.get_state(at(control)).interrupts
    for name in (thread, control):
        graph.invoke(Command(resume="yes"), at(name))
    values = [graph.get_state(at(name)).values for name in (thread, control)]
    assert values[0] == values[1] and "got yes" in values[0]["said"]


# --- refusals -----------------------------------------------------------------------------------


def test_a_reducer_that_makes_things_up_is_refused(kept: Kept) -> None:
    """T14."""
    made = itertools.count()

    def minting(state: Any, writes: Sequence[Any]) -> Any:
        return [*(state or []), *(f"{item}#{next(made)}" for write in writes for item in write)]

    graph, thread = both(kept.saver), fresh()
    say(graph, thread, "ab")
    before = kept.rows.image(thread)
    fold = reducer_fold({"said": minting, "seen": DeltaChannel(merged, dict)}, kept.saver)
    assert "not deterministic" in compact(kept, thread, fold).refused
    assert kept.rows.image(thread) == before


@pytest.mark.parametrize(
    ("reducers", "said"),
    [
        (None, "give the graph"),
        ({"said": extend}, "unknown channel 'seen'"),
        ({"said": extend, "seen": lambda state, writes: 1 / 0}, "cannot be reduced"),
    ],
)
def test_what_cannot_be_folded_is_refused(kept: Kept, reducers: Any, said: str) -> None:
    graph, thread = both(kept.saver), fresh()
    say(graph, thread, "ab")
    before = kept.rows.image(thread)
    fold = reducer_fold(reducers, kept.saver) if reducers else None
    applied = compact(kept, thread, fold)
    assert said in applied.refused and "\n" not in applied.refused
    assert kept.rows.image(thread) == before and not applied.deleted


def test_a_plain_thread_needs_no_graph(kept: Kept) -> None:
    graph, thread = one_node(Plain, answer, kept.saver), fresh()
    say(graph, thread, "ab")
    assert compact(kept, thread, None).deleted["checkpoints"] == 5
    assert graph.get_state(at(thread)).values["said"] == ["a", "a1", "b", "a3"]


def test_one_version_cannot_hold_two_values(kept: Kept) -> None:
    """A copy made while work was parked shows that work at an unchanged version (facts 3.3)."""
    hand = kept.hand().put("c1", None, {"a": snapshot("s")}, counts="a").write("c1", ("a", ["w"]))
    hand.put("c2", "c1", moved="a", counts="a").write("c2", ("a", ["parked"]))
    hand.put("c3", "c2", counts="a", metadata={"source": "update"})
    before = kept.rows.image(hand.thread)
    applied = compact(kept, hand.thread, reducer_fold({"a": extend}, kept.saver), protect=["c2"])
    assert "share a version of 'a'" in applied.refused
    assert kept.rows.image(hand.thread) == before
    assert compact(kept, hand.thread, reducer_fold({"a": extend}, kept.saver)).deleted
    found = kept.saver.get_tuple(at(hand.thread))
    assert found is not None
    assert found.checkpoint["channel_values"]["a"] == _DeltaSnapshot(["s", "w", "parked"])


def test_rows_that_change_under_the_values_are_read_again(kept: Kept) -> None:
    graph, thread = both(kept.saver), fresh()
    say(graph, thread, "ab")
    inner, waiting = graph_fold(graph, kept.saver), ["c"]

    class Late:
        def values(self, thread_id: str, folds: Sequence[Fold]) -> Any:
            found = inner.values(thread_id, folds)
            if waiting:
                say(graph, thread, waiting.pop())
            return found

    fold: Any = Late()
    assert compact(kept, thread, fold).deleted
    assert graph.get_state(at(thread)).values["said"] == ["a", "a1", "b", "a3", "c", "a5"]
    say(graph, thread, "d")
    waiting.append("e")
    refused = compact(kept, thread, fold, retries=0)
    assert "changed while they were read" in refused.refused
    assert graph.get_state(at(thread)).values["said"][-2:] == ["e", "a9"]


# --- any thread ---------------------------------------------------------------------------------

CHAINS = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 2]),  # how far back the parent lies
        st.sampled_from(["", "", "", "a", "b", "ab"]),  # snapshots
        st.sampled_from(["", "a", "b", "ab"]),  # writes
        st.sampled_from(["", "ab"]),  # moved
    ),
    min_size=1,
    max_size=8,
)


def value(kept: Kept, thread: str, name: str) -> dict[str, Any]:
    """What both channels hold at a checkpoint, by the rule of the runtime."""
    found = kept.saver.get_tuple(at(thread, name))
    assert found is not None
    held: dict[str, Any] = dict(found.checkpoint["channel_values"])
    absent = [c for c in found.checkpoint["channel_versions"] if c not in held]
    for channel, walked in history(kept, thread, name, absent).items():
        seed = walked.get("seed", [])
        start = seed.value if isinstance(seed, _DeltaSnapshot) else seed
        held[channel] = extend(start, [item for _, _, item in walked["writes"]])
    return {k: v.value if isinstance(v, _DeltaSnapshot) else v for k, v in held.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(chain=CHAINS, protect=st.sets(st.integers(0, 7), max_size=2))
def test_every_fold_reads_back(kept: Kept, chain: Any, protect: set[int]) -> None:
    hand, births = kept.hand(), set[str]()
    names = [f"c{number}" for number in range(len(chain))]
    for number, (back, snapshots, writes, moved) in enumerate(chain):
        parent = names[max(0, number - back)] if number else None
        again = parent in births or not number
        given_values = {c: snapshot(f"{c}{number}") for c in ("ab" if again else snapshots)}
        moves = [c for c in moved if c not in given_values]
        hand.put(names[number], parent, given_values, moved=moves, counts="ab")
        for channel in writes:
            hand.write(names[number], (channel, [f"w{number}"]), task=f"t-{channel}")
        births.add(parent or "")
    asked = [names[place] for place in protect if place < len(names)]
    wanted = {name: value(kept, hand.thread, name) for name in {*asked, names[-1]}}
    owned = kept.rows.image(hand.thread).own_writes
    fold = reducer_fold({"a": extend, "b": extend}, kept.saver)
    applied = compact(kept, hand.thread, fold, protect=asked)
    if applied.refused:  # a protected checkpoint and a copy of it: the one thing that may be
        assert "share a version" in applied.refused or "replay its writes" in applied.refused
        return
    image = kept.rows.image(hand.thread)
    assert {row.checkpoint_id for row in image.checkpoints} == wanted.keys()
    assert {name: value(kept, hand.thread, name) for name in wanted} == wanted
    assert image.own_writes == {key: each for key, each in owned.items() if key[1] in wanted}
    assert compact(kept, hand.thread, fold, protect=asked).plan.empty


# --- the pieces ---------------------------------------------------------------------------------


def test_sync_and_async_make_the_same_values(kept: Kept) -> None:
    graph, thread = both(kept.saver), fresh()
    say(graph, thread, "ab")
    name = kept.rows.image(thread).heads[""].checkpoint_id
    folds = [Fold("", name, ("said", "seen", "count"))]
    one = graph_fold(graph, kept.saver).values(thread, folds)
    assert {key[2] for key in one} == {"said", "seen"}  # a plain channel is not rebuilt

    async def other() -> Any:
        async with kept.store.asaver() as saver:
            return await graph_fold(both(None), saver).avalues(thread, folds)

    assert asyncio.run(other()) == one


def test_a_subgraph_the_graph_does_not_have(kept: Kept) -> None:
    fold = graph_fold(nested(kept.saver), kept.saver)
    assert set(fold.channels_of("sub:1f0")) >= {"said"}
    assert fold.channels_of("sub:1f0|2") == fold.channels_of("sub")
    with pytest.raises(UsageError, match="unknown subgraph 'sbu': did you mean 'sub'"):
        fold.channels_of("sbu:1f0")


def test_counts_of_folded_channels_go() -> None:
    metadata = {COUNTERS: {"a": [1, 2], "b": [3, 4]}, COUNTERS_OF_OLD: {"a": 1}, "step": 2}
    row = CheckpointRow("", "c", None, {}, metadata=metadata)
    assert without_counts(row, ["a"]) == {COUNTERS: {"b": [3, 4]}, "step": 2}
    assert without_counts(row, ["a", "b"]) == {"step": 2}


# Named by the tests below.
compiled = both(None)
builder = StateGraph(Delta)
builder.add_node("n", answer)
builder.add_edge(START, "n")
number = 7


def broken() -> Any:
    raise RuntimeError("no\nway")


def makes() -> Any:
    return builder


@pytest.mark.parametrize("name", ["compiled", "builder", "makes"])
def test_a_graph_by_its_name(name: str) -> None:
    assert "said" in load_graph(f"test_fold:{name}").channels


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("test_fold", UsageError, "not of the form package.module:name"),
        ("test_fold:numbr", UsageError, "did you mean 'number'"),
        ("test_fold:number", UsageError, "is of type int: name a compiled graph"),
        ("test_fold:broken", BackendError, "cannot be built"),
        ("no_such_module:graph", UsageError, "cannot be imported"),
        ("tiny_graph:build", BackendError, "cannot be built"),
    ],
)
def test_a_wrong_name_is_one_line(name: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        load_graph(name)
    assert "\n" not in str(caught.value)
