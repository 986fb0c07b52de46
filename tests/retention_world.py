"""A real graph with everything retention must respect, and random conversations played on it.

Delta channels of different frequencies, a full list and primitives; a node that asks, one that
fails, two that run side by side; subgraphs of one call, within one another and lasting ones. Each
node notes that it ran, so that work done twice is seen.
"""

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, Send, interrupt

import tiny_graph
from fix_threads import Kept, at
from savermark.retention.duration import persist_run_durations

SHAPES = ("call", "lasting", "both", "nested", "bare")


def merge(state: dict[str, Any] | None, writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The reducer of a channel of files."""
    found = dict(state or {})
    for write in writes:
        found.update(write)
    return found


def lists(frequency: int) -> Any:
    return Annotated[list[str], DeltaChannel(tiny_graph.extend, snapshot_frequency=frequency)]


def state_types(frequencies: tuple[int, int, int], full: bool) -> tuple[Any, ...]:
    """The states of the graph and of its subgraphs, with what these take and give.

    `full` is how threads were written before there were delta channels.
    """
    every, seldom, third = frequencies
    plain: Any = Annotated[list[str], operator.add]
    kept: Any = Annotated[dict[str, str], operator.or_]
    delta: Any = Annotated[dict[str, str], DeltaChannel(merge, dict, snapshot_frequency=third)]

    class State(TypedDict):
        said: plain if full else lists(every)  # type: ignore[valid-type]
        rare: plain if full else lists(seldom)  # type: ignore[valid-type]
        files: kept if full else delta  # type: ignore[valid-type]
        log: plain
        count: int
        mood: str | None

    class Inner(TypedDict):
        said: plain if full else lists(every)  # type: ignore[valid-type]
        own: plain if full else lists(2)  # type: ignore[valid-type]
        rare: plain if full else lists(seldom)  # type: ignore[valid-type]

    class Told(TypedDict):
        rare: plain if full else lists(seldom)  # type: ignore[valid-type]

    class Asked(TypedDict):
        said: plain if full else lists(every)  # type: ignore[valid-type]

    return State, Inner, Asked, Told


@dataclass
class World:
    """One compiled graph on a saver. `ran` is what its nodes did; `fails` makes `last` raise."""

    shape: str
    frequencies: tuple[int, int, int]
    saver: Any
    full: bool = False
    ran: list[str] = field(default_factory=list)
    fails: bool = False
    graph: Any = None

    def __post_init__(self) -> None:
        self.state, self.inner, self.asked, self.told = state_types(self.frequencies, self.full)
        self.graph = self._compiled()

    def noted(self, name: str, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def node(state: Any) -> Any:
            found = work(state)
            self.ran.append(f"{name} {len(state.get('said') or ())}")
            return found

        return node

    def _first(self, state: Any) -> Any:
        size = len(state["said"])
        found: dict[str, Any] = {"said": [f"first {size}"], "log": [f"l{size}"], "count": size}
        if size % 2:
            found["rare"] = [f"r{size}"]
        if size % 3 == 0:
            found["files"] = {f"f{size % 5}": f"v{size}"}
        return {**found, "mood": None if size % 4 else "calm"}

    @staticmethod
    def _ask(state: Any) -> Any:
        wants = any(word.startswith("?") for word in state["said"][-4:])
        return {"rare": [f"asked {interrupt('?')}" if wants else f"saw {len(state['said'])}"]}

    def _last(self, state: Any) -> Any:
        if self.fails:
            raise RuntimeError("planted")
        return {"log": [f"end {len(state['said'])}"]}

    def _subgraph(self, *, lasting: bool, deeper: Any = None) -> Any:
        builder = StateGraph(self.inner, input_schema=self.asked, output_schema=self.told)
        tell = "kept" if lasting else "pre"
        builder.add_node(
            "pre",
            self.noted(
                tell,
                lambda s: {
                    "own": [f"o{len(s.get('own') or ())}"],
                    "rare": [f"{tell} {len(s.get('own') or ())}"],
                },
            ),
        )
        builder.add_node("mid", deeper or self.noted("mid", lambda s: {"own": ["m"]}))
        builder.add_node("ask", self.noted("ask", self._ask))
        builder.add_edge(START, "pre")
        builder.add_edge("pre", "mid")
        builder.add_edge("mid", "ask")
        builder.add_edge("ask", END)
        return builder.compile(checkpointer=True if lasting else None)

    def _compiled(self) -> Any:
        nodes: list[tuple[str, Any]] = [("first", self.noted("first", self._first))]
        if self.shape in ("call", "both"):
            nodes.append(("call", self._subgraph(lasting=False)))
        if self.shape in ("lasting", "both"):
            nodes.append(("keep", self._subgraph(lasting=True)))
        if self.shape == "nested":
            nodes.append(("call", self._subgraph(lasting=False, deeper=self._bottom())))
        if self.shape == "bare":
            nodes.append(("ask", self.noted("ask", self._ask)))
        nodes.append(("last", self.noted("last", self._last)))
        builder = StateGraph(self.state)
        for name, node in nodes:
            builder.add_node(name, node)
        builder.add_node("side", self.noted("side", lambda s: {"rare": ["side"]}))
        builder.add_edge(START, "first")
        builder.add_conditional_edges("first", self._onward(nodes[1][0]))
        for (name, _), (then, _) in itertools.pairwise(nodes[1:]):
            builder.add_edge(name, then)
        builder.add_edge("last", END)
        builder.add_edge("side", END)
        return builder.compile(checkpointer=self.saver)

    def _bottom(self) -> Any:
        builder = StateGraph(self.inner, input_schema=self.asked, output_schema=self.told)
        builder.add_node("low", self.noted("low", lambda s: {"rare": ["low"], "own": ["b"]}))
        builder.add_edge(START, "low")
        builder.add_edge("low", END)
        return builder.compile()

    @staticmethod
    def _onward(name: str) -> Callable[[Any], Any]:
        """Sometimes a finished task stands beside one that asks; sometimes there are sends."""

        def route(state: Any) -> Any:
            word = next((w for w in reversed(state["said"]) if not w.startswith("first")), "")
            if word.startswith("*"):
                return [Send("side", state), Send("side", state), name]
            return [name, "side"] if word.startswith("?") and len(word) % 2 else [name]

        return route

    def state_of(self, thread: str, name: str | None = None) -> tuple[Any, ...]:
        """What a person sees of a state."""
        found = self.graph.get_state(at(thread, name))
        return found.values, found.next, [each.value for each in found.interrupts]


@dataclass(frozen=True)
class Act:
    """One thing that happens to a thread; `place` chooses among its checkpoints."""

    kind: str
    place: int = 0


KINDS = (
    *("say", "say", "say", "exit", "async", "ask", "ask", "send", "command", "update", "overwrite"),
    *("branch", "edit", "copy", "stamp", "stamp", "fail"),
)


@dataclass
class Played:
    """What became of a thread: the duration copies, and the head before each turn, oldest first.

    `line` is whether every turn went on from the head, so that the turns can be counted.
    """

    thread: str
    stamped: set[str] = field(default_factory=set)
    bases: list[str | None] = field(default_factory=list)
    line: bool = True


def play(kept: Kept, world: World, thread: str, acts: Sequence[Act], plain: int = 0) -> Played:
    """Play a conversation; its first `plain` acts on the graph as it was before delta channels."""
    played = Played(thread)
    old = World(world.shape, world.frequencies, world.saver, full=True)
    for number, act in enumerate(acts):
        now = old if number < plain else world
        one_act(kept, now, played, act, number)
    return played


def ids(kept: Kept, thread: str, space: str = "") -> list[str]:
    """The checkpoints of a namespace by the saver's own `list`, oldest first."""
    return sorted(f.checkpoint["id"] for f in kept.saver.list(at(thread, space=space)))


def one_act(kept: Kept, world: World, played: Played, act: Act, number: int) -> None:
    """What one act does: it answers what is asked, or finishes what is pending, before all else."""
    thread, graph, kind = played.thread, world.graph, act.kind
    more: dict[str, Any] = {"metadata": {"run_id": f"run-{number}"}}
    names = ids(kept, thread)
    state = graph.get_state(at(thread)) if names else None
    if state is not None and state.interrupts:
        graph.invoke(Command(resume=f"yes {number}"), {**at(thread), **more})
        return
    if state is not None and state.next and kind not in ("branch", "edit", "copy"):
        graph.invoke(None, {**at(thread), **more})  # what has failed goes on
        return
    mark = {"ask": "?" * (1 + number % 2), "send": "*"}.get(kind, "")
    given: Any = {"said": [f"{mark}w{number}"]}
    if kind == "stamp" and names:
        if persist_run_durations(kept.saver, thread, {f"run-{number}": 1 + number}):
            played.stamped.add(ids(kept, thread)[-1])
    elif kind in ("update", "overwrite") and names:
        values: Any = {"rare": [f"u{number}"], "files": {"u": f"{number}"}}
        if kind == "overwrite":
            values = {"said": Overwrite([f"o{number}"])}
        graph.update_state({**at(thread), **more}, values, as_node="last")
    elif kind in ("branch", "edit", "copy") and names:
        played.line = False
        target = {**at(thread, names[act.place % len(names)]), **more}
        if kind == "edit":
            graph.update_state(target, {"said": [f"e{number}"]}, as_node="last")
        elif kind == "copy":
            graph.update_state(target, None, as_node="__copy__")
        else:
            graph.invoke(given, target)
    else:
        played.bases.append(names[-1] if names else None)
        _run(world, thread, kind, given, more)


def _run(world: World, thread: str, kind: str, given: Any, more: Mapping[str, Any]) -> None:
    config: Any = {**at(thread), **more}
    if kind == "command" and world.graph.get_state(at(thread)).values:
        given = Command(update=given, goto="first")
    if kind != "fail":
        durability: Any = kind if kind in ("exit", "async") else "sync"
        world.graph.invoke(given, config, durability=durability)
        return
    world.fails = True
    try:
        world.graph.invoke(given, config)
    except RuntimeError as error:
        assert str(error) == "planted"
    finally:
        world.fails = False
