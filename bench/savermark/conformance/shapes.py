"""Real graphs with delta channels, played the same way on any saver, and what they read back as."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from savermark.conformance.model import fail

if TYPE_CHECKING:
    from savermark.conformance.apis import Api

TURNS = 4
SLOW = 0.03  # seconds by which the first of the parallel writers is late

# What `play` reads, in this order.
READINGS = (
    "at the head",
    "at an older checkpoint",
    "after a fork",
    "the first branch after the fork",
    "after update_state",
    "after update_state of an older checkpoint",
    "the whole history",
)


def _extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *(item for write in writes for item in write)]


def _merge(state: dict[str, int], writes: Sequence[dict[str, int]]) -> dict[str, int]:
    return {key: value for part in (state, *writes) for key, value in part.items()}


class State(TypedDict):
    """Two delta channels with different cadences and a plain one."""

    said: Annotated[list[str], DeltaChannel(_extend, snapshot_frequency=5)]
    files: Annotated[dict[str, int], DeltaChannel(_merge, snapshot_frequency=3)]
    count: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A way in which supersteps write."""

    name: str
    build: Callable[[Any], Any]
    last: str  # the node whose update an outside update stands for


def _one_writer(saver: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("a", lambda s: {"said": [f"a{len(s['said'])}"], "files": {"a": len(s["said"])}})
    graph.add_node("b", lambda s: {"said": [f"b{len(s['said'])}"], "count": len(s["said"])})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_edge("b", END)
    return graph.compile(checkpointer=saver)


def _twelve(state: State) -> list[Any]:
    turn = len(state["said"])
    return [
        Command(update={"said": [f"w{turn}.{number}"], "files": {f"f{number % 5}": turn + number}})
        for number in range(12)
    ]


def _twelve_writes(saver: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("a", _twelve)
    graph.add_edge(START, "a")
    graph.add_edge("a", END)
    return graph.compile(checkpointer=saver)


def _writer(name: str, wait: float) -> Any:
    def write(state: State) -> dict[str, Any]:
        time.sleep(wait)
        return {"said": [f"{name}{len(state['said'])}"], "files": {"last": ord(name)}}

    return write


def _parallel_writers(saver: Any) -> Any:
    graph = StateGraph(State)
    for name, wait in (("a", SLOW), ("b", 0.0), ("c", 0.0)):
        graph.add_node(name, _writer(name, wait))
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return graph.compile(checkpointer=saver)


SHAPES = (
    Shape("one writer a superstep", _one_writer, "b"),
    Shape("twelve writes from one task", _twelve_writes, "a"),
    Shape("three parallel writers, the first by path the slowest", _parallel_writers, "c"),
)


async def play(api: Api, shape: Shape) -> dict[str, Any]:
    """Play some turns, a fork and two updates on a thread of its own; what each reading gives."""
    graph = shape.build(api.saver)
    thread = {"configurable": {"thread_id": str(uuid4())}}

    async def read(config: Any) -> Any:
        found = await api.on(graph, "get_state", config)
        return found.values, found.next

    for turn in range(TURNS):
        await api.on(graph, "invoke", {"said": [f"h{turn}"]}, thread)
    history = await api.items(graph, "get_state_history", thread)
    settled = [row.config for row in history if not row.next]
    if len(settled) != TURNS:
        fail(f"the history has {len(settled)} settled checkpoints after {TURNS} turns")
    head, older, oldest = settled[0], settled[1], settled[2]
    seen = {"at the head": await read(thread), "at an older checkpoint": await read(older)}
    await api.on(graph, "invoke", {"said": ["fork"]}, older)
    seen["after a fork"] = await read(thread)
    seen["the first branch after the fork"] = await read(head)
    update = {"said": ["by hand"], "files": {"hand": 1}}
    await api.on(graph, "update_state", thread, update, as_node=shape.last)
    seen["after update_state"] = await read(thread)
    branch = await api.on(graph, "update_state", oldest, update, as_node=shape.last)
    seen["after update_state of an older checkpoint"] = await read(branch)
    history = await api.items(graph, "get_state_history", thread)
    seen["the whole history"] = [(row.values, row.next) for row in history]
    return seen


_REFERENCES: dict[tuple[str, str], dict[str, Any]] = {}  # by api and shape: always the same


async def reference(api: Api, shape: Shape) -> dict[str, Any]:
    """The same play through the same api on LangGraph's memory saver."""
    key = (api.name, shape.name)
    if key not in _REFERENCES:
        _REFERENCES[key] = await play(api.like(InMemorySaver()), shape)
    return _REFERENCES[key]
