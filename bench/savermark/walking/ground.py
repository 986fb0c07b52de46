"""What a walk trial works on: the opened store, its walks, and what is read how."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from typing_extensions import TypedDict

from savermark.errors import BackendError, Unsupported
from savermark.graphs.channels import extend_all
from savermark.history.walks import walk, walk_names, with_walk
from savermark.records import Check, CostRow, Phase, PhaseStorage, SampleSet
from savermark.walking.floor import floor_of
from savermark.walking.rows import OTHER, PROBE, channels, checkpoint_id

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.backends.base import Store
    from savermark.spec import WalkSpec
    from savermark.trial.driver import Driver, Graph
    from savermark.walking.case import WalkCase

FLOOR = "floor"  # what the floor is called among the walks
ALL = "all"  # the history of every state
BASE = "base"  # the walk that every other one is compared with
EVERY = "all"  # as `reads.walks`: whatever is registered


@dataclass(frozen=True, slots=True)
class Read:
    """One thing that is timed and counted."""

    op: str
    at: str
    saver: BaseCheckpointSaver[Any]  # whose connection and serializer it goes through
    call: Callable[[], Awaitable[Any]]


@dataclass(slots=True)
class Ground:
    """One walk trial: what it works on, and what it yields."""

    case: WalkCase
    driver: Driver
    store: Store
    saver: BaseCheckpointSaver[Any]
    clock: Callable[[], int]
    samples: list[SampleSet] = field(default_factory=list)
    costs: list[CostRow] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    phases: list[PhaseStorage] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> WalkSpec:
        return self.case.spec

    def check(self, name: str, tested: int, broken: list[str]) -> None:
        """File one check over `tested` things, of which `broken` did not hold."""
        detail = f"{tested} checked"
        if broken:
            detail = f"{len(broken)} of {tested} wrong: {'; '.join(broken[:3])}"
        self.checks.append(Check(Phase.LOADED, name, not broken, detail))

    def unsupported(self, what: str, why: str) -> None:
        """Note that `what` could not be measured here."""
        self.notes.setdefault("unsupported", {})[what] = why


def chosen_walks(spec: WalkSpec) -> list[str]:
    """The names that the workload asks for, of all those that can be loaded.

    Raises `UsageError` for an unknown one, `BackendError` for one that is named and cannot be
    loaded.
    """
    wanted = spec.reads.walks.strip()
    if wanted == EVERY:
        return [name for name in walk_names() if not _broken(name)]
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        walk(name)
    return list(dict.fromkeys(names))


def _broken(name: str) -> str:
    """Why a registered walk cannot be loaded, else empty."""
    try:
        walk(name)
    except BackendError as error:
        return str(error)
    return ""


def config(number: int) -> RunnableConfig:
    """The config of the probe thread's checkpoint with this number."""
    place = {"thread_id": PROBE, "checkpoint_ns": "", "checkpoint_id": checkpoint_id(number)}
    return {"configurable": place}


def walk_reads(ground: Ground) -> list[Read]:
    """The walk from the head by each walk that can read this saver; base first."""
    names = chosen_walks(ground.spec)
    if ground.spec.reads.walks.strip() == EVERY:
        for name in walk_names():
            if why := _broken(name):
                ground.unsupported(f"walk_{name}", why)
    head, wanted = config(ground.spec.thread.depth - 1), channels(ground.spec)
    found = []
    for name in sorted(names, key=lambda name: (name != BASE, name)):
        chosen = walk(name)
        if not chosen.supports(ground.saver):
            why = f"it cannot read a {type(ground.saver).__name__}"
            ground.unsupported(f"walk_{name}", why)
            continue

        def call(chosen: Any = chosen) -> Awaitable[Any]:
            return ground.driver.call(chosen, "history", ground.saver, head, wanted)

        found.append(Read(f"walk_{name}", "head", ground.saver, call))
    return found


def floor_read(ground: Ground) -> Read | None:
    """The floor; None, and a note, where it cannot be known."""
    try:
        floor = floor_of(ground.saver, ground.spec)
    except Unsupported as error:
        ground.unsupported(f"walk_{FLOOR}", str(error))
        return None
    values = floor.avalues if ground.spec.reads.api == "async" else floor.values

    async def call() -> Any:
        found: Any = values(ground.saver)
        return await found if hasattr(found, "__await__") else found

    return Read(f"walk_{FLOOR}", "head", ground.saver, call)


def state_reads(ground: Ground) -> list[Read]:
    """Whole reads of a graph through each walk: the head, half way, and a history of states."""
    spec, driver = ground.spec, ground.driver
    if not spec.reads.states:
        return []
    older = max(1, spec.thread.depth // 2 - 1)  # as far from a snapshot as the head, if it divides
    head, middle = config(spec.thread.depth - 1), config(older)
    found = []
    for name in chosen_walks(spec):
        if not walk(name).supports(ground.saver):
            continue
        saver = with_walk(ground.saver, name)
        graph = build_graph(spec, saver)

        def state(at: RunnableConfig, graph: Graph = graph) -> Callable[[], Awaitable[Any]]:
            return lambda: driver.call(graph, "get_state", at)

        found.append(Read(f"get_state_{name}", "head", saver, state(head)))
        found.append(
            Read(f"resume_{name}", f"depth:{spec.thread.depth // 2}", saver, state(middle))
        )
        limits = {str(spec.reads.history): spec.reads.history, ALL: spec.thread.depth * 2}
        for told, limit in limits.items() if spec.reads.history else ():

            def listed(graph: Graph = graph, limit: int = limit) -> Awaitable[Any]:
                return driver.rows(graph, "get_state_history", _thread(), limit=limit)

            found.append(Read(f"history_{told}_{name}", "head", saver, listed))
    return found


def _thread() -> RunnableConfig:
    return {"configurable": {"thread_id": PROBE}}


def build_graph(spec: WalkSpec, saver: BaseCheckpointSaver[Any]) -> Graph:
    """A graph with the workload's channels and one node, which is never run."""
    reducer: Any = _messages_delta_reducer if spec.channels.kind == "message" else extend_all
    fields: dict[str, Any] = {
        name: Annotated[list, DeltaChannel(reducer, snapshot_frequency=spec.frequency(number))]
        for number, name in enumerate(channels(spec))
    }
    if spec.channels.other_bytes:
        fields[OTHER] = list
    builder = StateGraph(TypedDict("WalkState", fields))  # type: ignore[operator]
    builder.add_node("work", lambda state: {})
    builder.add_edge(START, "work")
    builder.add_edge("work", END)
    return builder.compile(checkpointer=saver)
