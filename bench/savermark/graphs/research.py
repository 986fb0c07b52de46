"""The subgraph: it reads the conversation, adds notes of its own and hands back a report."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph.graph import END, START, StateGraph

from savermark.graphs.channels import messages_type, schema
from savermark.graphs.messages import to_state
from savermark.graphs.nodes import node
from savermark.script import dialogue

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

    from savermark.spec import WorkloadSpec


def research_graph(spec: WorkloadSpec) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A chain of `subgraph.steps` nodes; persistent ones keep their conversation over the turns.

    It is a node of the agent, so the runtime hands it the agent's whole state and stores that as
    its input: even with delta channels its storage grows with the square of the turns.
    """
    messages = messages_type(spec.state.messages)
    builder: StateGraph[Any] = StateGraph(
        schema("ResearchState", {"messages": messages, "report": str}),
        output_schema=schema("ResearchReport", {"report": str}),
    )
    last = START
    for step in range(spec.subgraph.steps):
        name = f"step_{step:02d}"
        builder.add_node(name, node(spec, partial(take_note, spec, step)))
        builder.add_edge(last, name)
        last = name
    builder.add_edge(last, END)
    return builder.compile(checkpointer=True if spec.subgraph.kind == "persistent" else None)


def take_note(spec: WorkloadSpec, step: int, state: dict[str, Any]) -> dict[str, Any]:
    """One note into the subgraph's own conversation; the last step also writes the report."""
    cue, _ = dialogue.last_human(state["messages"])
    update: dict[str, Any] = {"messages": [dialogue.research_note(spec, cue, step)]}
    if step + 1 == spec.subgraph.steps:
        update["report"] = dialogue.report(spec, cue)
    return to_state(update)
