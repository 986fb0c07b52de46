"""The small graphs that published benchmarks used.

    human-ai   START -> human (returns nothing) -> ai -> END    langgraph pull request 7586
    ai-only    START -> ai -> END                               langgraph pull request 7676
    channels   START -> note -> END, one message to each of K   langgraph pull request 7699

In `channels` all K channels (`state.extra.count`) are conversations: their kind comes from
`state.messages.kind`, so that the case columns tell it, and their frequencies from
`state.extra.frequencies`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.graph import END, START, StateGraph

from savermark.graphs.channels import messages_type, schema
from savermark.graphs.messages import to_state
from savermark.graphs.nodes import node
from savermark.script import published
from savermark.spec import MessagesSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from savermark.spec import WorkloadSpec

State = dict[str, Any]


def build(
    spec: WorkloadSpec, saver: BaseCheckpointSaver[Any] | None
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The published graph that `spec.graph` names, compiled."""
    if spec.graph == "channels":
        nodes: dict[str, Callable[[State], State]] = {"note": lambda state: note(spec, state)}
    elif spec.graph == "human-ai":
        nodes = {"human": lambda _: {}, "ai": lambda state: answer(spec, state)}
    else:
        nodes = {"ai": lambda state: answer(spec, state)}
    builder: StateGraph[Any] = StateGraph(state_type(spec))
    for name, step in nodes.items():
        builder.add_node(name, node(spec, step))
    for start, end in zip((START, *nodes), (*nodes, END), strict=True):
        builder.add_edge(start, end)
    return builder.compile(checkpointer=saver)


def state_type(spec: WorkloadSpec) -> Any:
    """The state schema: one conversation, or K of them."""
    if spec.graph != "channels":
        return schema("ConversationState", {"messages": messages_type(spec.state.messages)})
    kind = spec.state.messages.kind
    fields = {
        published.channel(number): messages_type(MessagesSpec(kind, frequency))
        for number, frequency in enumerate(published.frequencies(spec))
    }
    return schema("ChannelsState", fields)


def answer(spec: WorkloadSpec, state: State) -> State:
    """The model's answer to the last human message, whose id names the turn."""
    asked = next(m.id for m in reversed(state["messages"]) if m.type == "human")
    return to_state({"messages": [published.ai(spec, int(asked.removeprefix("h")))]})


def note(spec: WorkloadSpec, state: State) -> State:
    """One more message for each channel; the channels themselves tell how many there were."""
    return to_state(published.notes(spec, len(state.get(published.channel(0)) or ())))
