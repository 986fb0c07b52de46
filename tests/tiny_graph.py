"""A small real graph: a delta channel, a full list and a counter, all deterministic."""

from __future__ import annotations

import asyncio
import operator
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.backends.base import Store


def extend(state: list[str] | None, writes: Sequence[list[str]]) -> list[str]:
    return [*(state or []), *(item for write in writes for item in write)]


class State(TypedDict):
    said: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=5)]
    log: Annotated[list[str], operator.add]
    count: int


def _answer(state: State) -> dict[str, Any]:
    length = len(state["said"])
    return {"said": [f"answer {length} to {state['said'][-1]}"], "log": [f"l{length}"]}


def _count(state: State) -> dict[str, Any]:
    return {"count": len(state["log"])}


def build(saver: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("answer", _answer)
    graph.add_node("count", _count)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "count")
    graph.add_edge("count", END)
    return graph.compile(checkpointer=saver)


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def expected(words: Sequence[str]) -> dict[str, Any]:
    """The state after one turn for each word, by the rules above and without a graph."""
    said: list[str] = []
    for word in words:
        said.append(word)
        said.append(f"answer {len(said)} to {word}")
    log = [f"l{2 * turn + 1}" for turn in range(len(words))]
    return {"said": said, "log": log, "count": len(words)}


def drive(store: Store, thread: str, words: Sequence[str], serde: Any = None) -> dict[str, Any]:
    """One turn for each word on a saver of its own; the thread's state as it reads back."""
    with store.saver(serde) as saver:
        graph = build(saver)
        for word in words:
            graph.invoke({"said": [word]}, config(thread))
        return dict(graph.get_state(config(thread)).values)


async def _adrive(store: Store, thread: str, words: Sequence[str], serde: Any) -> dict[str, Any]:
    async with store.asaver(serde) as saver:
        graph = build(saver)
        for word in words:
            await graph.ainvoke({"said": [word]}, config(thread))
        return dict((await graph.aget_state(config(thread))).values)


def adrive(store: Store, thread: str, words: Sequence[str], serde: Any = None) -> dict[str, Any]:
    """The async twin of `drive`."""
    return asyncio.run(_adrive(store, thread, words, serde))


def read(store: Store, thread: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """State and history as a fresh saver reads them."""
    with store.saver() as saver:
        graph = build(saver)
        history = [dict(snapshot.values) for snapshot in graph.get_state_history(config(thread))]
        return dict(graph.get_state(config(thread)).values), history
