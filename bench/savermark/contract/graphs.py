"""The small graphs of the scenarios; what a node says shows how much of the state it was given.

Each is built in two modes: `full` channels, whose every value is stored, and `delta` channels,
which are rebuilt from writes. Nodes tell in `ran` what they did, so that a task that runs again
shows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import interrupt
from typing_extensions import TypedDict

from savermark.graphs.channels import extend_all

Mode = Literal["full", "delta"]
MODES: tuple[Mode, ...] = ("full", "delta")
Build = Callable[[Mode, list[str]], Any]  # mode, what nodes did -> a graph to be compiled

ASK = "ask"  # a topic that makes a node wait for an answer
BOOM = "boom"  # a topic at which a node fails the first time


def _messages(mode: Mode, frequency: int) -> Any:
    if mode == "full":
        return Annotated[list, add_messages]
    reducer: Any = _messages_delta_reducer
    return Annotated[list, DeltaChannel(reducer, snapshot_frequency=frequency)]


def _items(mode: Mode, frequency: int) -> Any:
    if mode == "full":
        return Annotated[list, operator.add]
    return Annotated[list, DeltaChannel(extend_all, snapshot_frequency=frequency)]


def _schema(name: str, **fields: Any) -> Any:
    return TypedDict(name, fields)  # type: ignore[operator]


def _reply(state: Any, text: str = "") -> AIMessage:
    """An answer that counts what it was given."""
    asked = state["messages"][-1]
    return AIMessage(f"{len(state['messages'])} {text or asked.content}", id=f"re-{asked.id}")


def chat(mode: Mode, ran: list[str]) -> Any:
    """One node that answers; it fails once for each thread that says `boom`."""
    failed = set[str]()

    def answer(state: Any, config: RunnableConfig) -> Any:
        thread = config["configurable"]["thread_id"]
        if state["messages"][-1].content.startswith(BOOM) and thread not in failed:
            failed.add(thread)
            raise RuntimeError("the tool is down")
        ran.append("answer")
        return {"messages": [_reply(state)]}

    # mypy cannot know the annotations of a schema that is made at run time.
    graph: Any = StateGraph(_schema("Chat", messages=_messages(mode, 5)))
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph


def channels(mode: Mode, ran: list[str]) -> Any:
    """Two channels whose snapshots never fall together."""

    def answer(state: Any) -> Any:
        ran.append("answer")
        seen = f"{len(state['messages'])}/{len(state['facts'])}"
        return {"messages": [_reply(state, seen)], "facts": [seen]}

    fields = {"messages": _messages(mode, 3), "facts": _items(mode, 8)}
    graph: Any = StateGraph(_schema("Channels", **fields))
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph


def parallel(mode: Mode, ran: list[str]) -> Any:
    """Two nodes at once: one finishes, the other waits for an answer; a third sums up."""

    def work(state: Any) -> Any:
        ran.append("work")
        return {"facts": [f"work {len(state['messages'])}"]}

    def ask(state: Any) -> Any:
        topic = state["messages"][-1].content
        answer = interrupt(topic) if topic.startswith(ASK) else "no need"
        ran.append("ask")
        return {"facts": [f"answer {answer}"]}

    def close(state: Any) -> Any:
        ran.append("close")
        return {"messages": [_reply(state, ", ".join(state["facts"]))]}

    fields = {"messages": _messages(mode, 3), "facts": _items(mode, 2)}
    graph: Any = StateGraph(_schema("Parallel", **fields))
    for node in (work, ask, close):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "work")
    graph.add_edge(START, "ask")
    graph.add_edge(["work", "ask"], "close")
    graph.add_edge("close", END)
    return graph


def family(mode: Mode, ran: list[str]) -> Any:
    """A subgraph that remembers over turns, and one that is called anew and may ask a person."""

    def answer(state: Any) -> Any:
        ran.append("answer")
        text = f"{state['count']} {state['verdict']} {state['topic']}"
        return {"messages": [_reply(state, text)]}

    fields = {"messages": _messages(mode, 5), "topic": str, "count": int, "verdict": str}
    graph: Any = StateGraph(_schema("Family", **fields))
    graph.add_node("memory", _memory(mode, ran))
    graph.add_node("review", _review(mode, ran))
    graph.add_node("answer", answer)
    graph.add_edge(START, "memory")
    graph.add_edge("memory", "review")
    graph.add_edge("review", "answer")
    graph.add_edge("answer", END)
    return graph


def _memory(mode: Mode, ran: list[str]) -> Any:
    def note(state: Any) -> Any:
        ran.append("note")
        return {"log": [state["topic"]]}

    def count(state: Any) -> Any:
        return {"count": len(state["log"])}

    graph: Any = StateGraph(_schema("Memory", topic=str, count=int, log=_items(mode, 3)))
    graph.add_node("note", note)
    graph.add_node("count", count)
    graph.add_edge(START, "note")
    graph.add_edge("note", "count")
    graph.add_edge("count", END)
    return graph.compile(checkpointer=True)


def _review(mode: Mode, ran: list[str]) -> Any:
    def read(state: Any) -> Any:
        ran.append("read")
        return {"steps": [f"read {state['topic']}"]}

    def judge(state: Any) -> Any:
        topic = state["topic"]
        answer = interrupt(topic) if topic.startswith(ASK) else "fine"
        ran.append("judge")
        return {"steps": [answer], "verdict": f"{len(state['steps'])} {answer}"}

    graph: Any = StateGraph(_schema("Review", topic=str, verdict=str, steps=_items(mode, 4)))
    graph.add_node("read", read)
    graph.add_node("judge", judge)
    graph.add_edge(START, "read")
    graph.add_edge("read", "judge")
    graph.add_edge("judge", END)
    return graph.compile()
