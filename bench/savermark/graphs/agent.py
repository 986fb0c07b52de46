"""The `agent` shape: a scripted model with tools, and what a spec puts around it.

    START -> [research] -> [worker x width] -> [approve] -> model <-> tools -> END

A node is there only when the spec asks for it, so that a plain chat takes three checkpoints a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

from savermark.graphs.channels import agent_state
from savermark.graphs.messages import to_state
from savermark.graphs.nodes import node
from savermark.graphs.research import research_graph
from savermark.script import dialogue
from savermark.script.dialogue import Cue

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from savermark.spec import WorkloadSpec

State = dict[str, Any]
Route = Callable[[State], Any]


def build(
    spec: WorkloadSpec, saver: BaseCheckpointSaver[Any] | None
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The agent of `spec`, compiled; its nodes are coroutines when the spec's api is async."""
    builder: StateGraph[Any] = StateGraph(agent_state(spec))
    add_preamble(builder, spec)
    builder.add_node("model", node(spec, lambda state: answer(spec, state)))
    if spec.tools.calls:
        add_tools(builder, spec)
    else:
        builder.add_edge("model", END)
    return builder.compile(checkpointer=saver)


def add_preamble(builder: StateGraph[Any], spec: WorkloadSpec) -> None:
    """What comes before the model: the subgraph, the fan-out, the question to the human."""
    last = START
    if spec.subgraph.kind != "none":
        builder.add_node("research", research_graph(spec))
        builder.add_edge(last, last := "research")
    if spec.fan_out.width:
        builder.add_node("worker", node(spec, lambda task: work(spec, task)))
        builder.add_conditional_edges(last, lambda state: deal(spec, state), ["worker"])
        last = "worker"
    if spec.interrupts.every:
        builder.add_node("approve", node(spec, approve))
        builder.add_conditional_edges(
            last, lambda state: ask_or_go(spec, state), ["approve", "model"]
        )
        last = "approve"
    builder.add_edge(last, "model")


def add_tools(builder: StateGraph[Any], spec: WorkloadSpec) -> None:
    """The tool loop: one call a step, or all calls of a step as tasks of their own."""
    if spec.tools.order == "parallel":
        builder.add_node("tools", node(spec, lambda call: use_tool(spec, [call])))
        builder.add_conditional_edges("model", send_calls, ["tools", END])
    else:
        builder.add_node("tools", node(spec, lambda state: use_tool(spec, calls_of(state))))
        builder.add_conditional_edges("model", tools_or_end, ["tools", END])
    builder.add_edge("tools", "model")


def answer(spec: WorkloadSpec, state: State) -> State:
    """The model's step; with the final answer come the turn's files and extra items."""
    message = dialogue.reply(spec, state["messages"])
    update: State = {"messages": [message]}
    if not message.tool_calls:
        cue, _ = dialogue.last_human(state["messages"])
        update |= dialogue.side_channels(spec, cue)
    return to_state(update)


def calls_of(state: State) -> list[Any]:
    """The tool calls of the last message."""
    return list(state["messages"][-1].tool_calls)


def use_tool(spec: WorkloadSpec, calls: list[Any]) -> State:
    """The results of tool calls, as messages."""
    return to_state({"messages": [dialogue.tool_result(spec, call) for call in calls]})


def tools_or_end(state: State) -> str:
    """After the model: its tool calls if it made any."""
    return "tools" if calls_of(state) else END


def send_calls(state: State) -> Any:
    """After the model: one task for each tool call."""
    return [Send("tools", call) for call in calls_of(state)] or END


def deal(spec: WorkloadSpec, state: State) -> list[Send]:
    """One task for each worker; each is told whose question it works on and its number."""
    cue, _ = dialogue.last_human(state["messages"])
    tasks = [{"question": str(cue), "number": number} for number in range(spec.fan_out.width)]
    return [Send("worker", task) for task in tasks]


def work(spec: WorkloadSpec, task: dict[str, Any]) -> State:
    """A worker's finding."""
    return {"findings": [dialogue.finding(spec, Cue.parse(task["question"]), task["number"])]}


def ask_or_go(spec: WorkloadSpec, state: State) -> str:
    """Before the model: whether this turn needs the human's word."""
    cue, _ = dialogue.last_human(state["messages"])
    return "approve" if dialogue.asks(spec, cue) else "model"


def approve(state: State) -> State:
    """Stop until the human answers, and keep the answer."""
    cue, _ = dialogue.last_human(state["messages"])
    return {"decision": interrupt({"question": f"go on with {cue}?"})}
