"""Random conversations through the real runtime: a pruned thread and its untouched twin agree."""

from __future__ import annotations

import itertools
import operator
from typing import Annotated, Any, TypedDict

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, interrupt

import tiny_graph
from fix_threads import Kept, at, clone
from savermark.retention.apply import apply_thread
from savermark.retention.duration import persist_run_durations
from savermark.retention.fold import graph_fold
from savermark.retention.policy import parse_policy

NUMBERS = itertools.count()


class State(TypedDict):
    said: Annotated[list[str], DeltaChannel(tiny_graph.extend, snapshot_frequency=3)]
    rare: Annotated[list[str], DeltaChannel(tiny_graph.extend, snapshot_frequency=7)]
    log: Annotated[list[str], operator.add]


def first(state: State) -> Any:
    size = len(state["said"])
    found: dict[str, Any] = {"said": [f"first {size}"], "log": [f"l{size}"]}
    return {**found, "rare": [f"r{size}"]} if size % 2 else found


def ask(state: State) -> Any:
    """Stops to ask whenever the last thing said asks for it."""
    wants = any(word.startswith("?") for word in state["said"][-3:])
    return {"said": [f"asked {interrupt('?')}" if wants else f"saw {len(state['said'])}"]}


def build(saver: Any, inner_saver: Any) -> Any:
    """first, then a subgraph (pre, ask) that shares the channels, then last."""
    inner = StateGraph(State)
    inner.add_node("pre", first)
    inner.add_node("ask", ask)
    inner.add_edge(START, "pre")
    inner.add_edge("pre", "ask")
    inner.add_edge("ask", END)
    outer = StateGraph(State)
    outer.add_node("first", first)
    outer.add_node("sub", inner.compile(checkpointer=inner_saver))
    outer.add_node("last", lambda state: {"log": [f"end {len(state['said'])}"]})
    outer.add_edge(START, "first")
    outer.add_edge("first", "sub")
    outer.add_edge("sub", "last")
    outer.add_edge("last", END)
    return outer.compile(checkpointer=saver)


ACTS = ("say", "say", "say", "exit", "ask", "update", "overwrite", "branch", "edit", "stamp")
POLICIES = (
    "keep-latest",
    "keep-latest,duration-leaves",
    "compact",
    "keep-turns=1",
    "keep-turns=2,leaf-siblings,duration-leaves",
    "keep-turns=2,compact",
    "leaf-siblings,duration-leaves",
)


def play(kept: Kept, graph: Any, thread: str, acts: list[tuple[str, int]]) -> None:
    for number, (act, place) in enumerate(acts):
        now = graph.get_state(at(thread))
        if now.interrupts:
            graph.invoke(Command(resume=f"yes {number}"), at(thread))
            continue
        word = f"{'?' if act == 'ask' else ''}w{number}"
        names = [row.checkpoint_id for row in kept.rows.image(thread).spaces.get("", {}).values()]
        if act in ("say", "ask", "exit") or not names:
            durability: Any = "exit" if act == "exit" else "sync"
            graph.invoke({"said": [word]}, at(thread), durability=durability)
        elif act == "update":
            graph.update_state(at(thread), {"rare": [word]}, as_node="last")
        elif act == "overwrite":
            graph.update_state(at(thread), {"said": Overwrite([word])}, as_node="last")
        elif act == "stamp":
            persist_run_durations(kept.saver, thread, {f"run-{number}": 1})
        else:
            target = at(thread, names[place % len(names)])
            if act == "edit":
                graph.update_state(target, {"said": [word]}, as_node="last")
            else:
                graph.invoke({"said": [word]}, target)


def state_of(graph: Any, thread: str, name: str | None = None) -> Any:
    found = graph.get_state(at(thread, name))
    return found.values, found.next, [each.value for each in found.interrupts]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    acts=st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 40)), min_size=2, max_size=7),
    inner=st.sampled_from([None, True]),
    policy=st.sampled_from(POLICIES),
    data=st.data(),
)
def test_a_pruned_thread_goes_on_like_its_twin(
    kept: Kept, acts: Any, inner: Any, policy: str, data: Any
) -> None:
    graph, thread = build(kept.saver, inner), f"runtime-{next(NUMBERS)}"
    play(kept, graph, thread, acts)
    twin = clone(kept, thread)
    names = list(kept.rows.image(thread).spaces[""])
    protect = data.draw(st.lists(st.sampled_from(names), max_size=1))
    fold = graph_fold(graph, kept.saver)
    applied = apply_thread(kept.rows, thread, parse_policy(policy), protect=protect, fold=fold)
    event("refused" if applied.refused else "deleted" if applied.deleted else "nothing to do")
    if applied.refused:
        assert kept.rows.image(thread).checkpoints == kept.rows.image(twin).checkpoints
        return
    for name in applied.plan.kept[""].targets:
        assert state_of(graph, thread, name) == state_of(graph, twin, name), name
    assert state_of(graph, thread) == state_of(graph, twin)
    target = data.draw(st.sampled_from(sorted(applied.plan.kept[""].targets)))
    ends = []
    for name in (thread, twin):
        other = clone(kept, name)
        graph.invoke({"said": ["again"]}, at(other, target))
        ends.append(state_of(graph, other))
    assert ends[0] == ends[1]
    for name in (thread, twin):
        if graph.get_state(at(name)).interrupts:
            graph.invoke(Command(resume="at last"), at(name))
        graph.invoke({"said": ["more"]}, at(name))
    assert state_of(graph, thread) == state_of(graph, twin)
