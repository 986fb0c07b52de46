"""The `deep-agent` shape: the real `deepagents` graph with a scripted model and one search tool.

Delta mode is the graph as it ships. Full mode is the same compiled graph with the two channels
swapped for ones that store their whole value at each update, as before the delta channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.graph.message import add_messages

from savermark.graphs.messages import to_langchain
from savermark.script import deep_agent as script

if TYPE_CHECKING:
    from collections.abc import Callable

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from savermark.spec import WorkloadSpec

    Graph = CompiledStateGraph[Any, Any, Any, Any]


def build(spec: WorkloadSpec, saver: BaseCheckpointSaver[Any] | None) -> Graph:
    """The agent, compiled; raises `WorkloadError` when the extra is not installed."""
    script.require_extra()
    from deepagents import create_deep_agent

    agent: Graph = create_deep_agent(
        ScriptedModel(workload=spec), tools=[search_tool(spec)], checkpointer=saver
    )
    set_channels(agent, spec)
    return agent


class ScriptedModel(BaseChatModel):
    """A chat model that says what the script says; it needs no network."""

    workload: Any  # a WorkloadSpec, which the base class's field checks need not know

    @property
    def _llm_type(self) -> str:
        return "savermark-scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """The script knows its tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        said = to_langchain(script.reply(self.workload, messages))
        return ChatResult(generations=[ChatGeneration(message=said)])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return self._generate(messages)


def search_tool(spec: WorkloadSpec) -> StructuredTool:
    """The tool whose results are scripted; both apis call it without a thread of its own."""

    def search(query: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        return script.search(spec, tool_call_id)

    async def asearch(query: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        return script.search(spec, tool_call_id)

    return StructuredTool.from_function(
        search, coroutine=asearch, name=script.SEARCH_TOOL, description="Search outside sources."
    )


def set_channels(agent: Graph, spec: WorkloadSpec) -> None:
    """Give `messages` and `files` the kind and frequency that the spec states."""
    whole: dict[str, tuple[type, Callable[[Any, Any], Any]]] = {
        "messages": (list, add_messages),
        "files": (dict, merge_files),
    }
    for name, (kind, frequency) in script.kinds_of(spec).items():
        shipped = agent.channels[name]
        assert isinstance(shipped, DeltaChannel)
        typ, reducer = whole[name]
        channel: Any
        if kind == "full":
            channel = BinaryOperatorAggregate(typ, reducer)
        elif shipped.snapshot_frequency != frequency:
            channel = DeltaChannel(shipped.reducer, typ, snapshot_frequency=frequency)
        else:
            continue
        channel.key = name
        agent.channels[name] = channel


def merge_files(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """One update of the files in full mode; None takes a file away."""
    merged = {**left, **right}
    return {path: content for path, content in merged.items() if content is not None}
