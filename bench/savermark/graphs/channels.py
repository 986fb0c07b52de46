"""State schemas and their reducers: each channel full, delta or plain, as the spec says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from langgraph.channels.delta import DeltaChannel
from langgraph.graph.message import _messages_delta_reducer, add_messages
from typing_extensions import TypedDict

from savermark.script.dialogue import extra_channel

if TYPE_CHECKING:
    from savermark.spec import MessagesSpec, WorkloadSpec


def merge_files(left: dict[str, str], right: dict[str, str]) -> dict[str, str]:
    """One update of the files channel in full mode."""
    return {**left, **right}


def merge_all_files(state: dict[str, str], writes: Sequence[dict[str, str]]) -> dict[str, str]:
    """A batch of updates of the files channel in delta mode; any batching gives the same."""
    merged = dict(state)
    for write in writes:
        merged.update(write)
    return merged


def extend(left: list[Any], right: list[Any]) -> list[Any]:
    """One update of a list channel in full mode."""
    return [*left, *right]


def extend_all(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    """A batch of updates of a list channel in delta mode; any batching gives the same."""
    return [*state, *(item for write in writes for item in write)]


def messages_type(spec: MessagesSpec) -> Any:
    """The annotated type of a conversation channel."""
    if spec.kind == "full":
        return Annotated[list, add_messages]
    reducer: Any = _messages_delta_reducer
    return Annotated[list, DeltaChannel(reducer, snapshot_frequency=spec.snapshot_frequency)]


def _list_type(kind: str, frequency: int) -> Any:
    if kind == "full":
        return Annotated[list, extend]
    return Annotated[list, DeltaChannel(extend_all, snapshot_frequency=frequency)]


def _files_type(kind: str, frequency: int) -> Any:
    if kind == "full":
        return Annotated[dict, merge_files]
    return Annotated[dict, DeltaChannel(merge_all_files, snapshot_frequency=frequency)]


def agent_state(spec: WorkloadSpec) -> Any:
    """The agent's state schema: a typed dictionary with only the channels the spec asks for."""
    state = spec.state
    fields: dict[str, Any] = {"messages": messages_type(state.messages)}
    if state.files.kind != "none":
        fields["files"] = _files_type(state.files.kind, state.files.snapshot_frequency)
    if state.static.bytes:
        fields["static"] = str
    for index in range(state.extra.count):
        frequency = state.extra.frequencies[index % len(state.extra.frequencies)]
        fields[extra_channel(index)] = _list_type(state.extra.kind, frequency)
    if spec.fan_out.width:
        fields["findings"] = _list_type(state.messages.kind, state.messages.snapshot_frequency)
    if spec.subgraph.kind != "none":
        fields["report"] = str
    if spec.interrupts.every:
        fields["decision"] = str
    return schema("AgentState", fields)


def schema(name: str, fields: dict[str, Any]) -> Any:
    """A typed dictionary made at run time."""
    return TypedDict(name, fields)  # type: ignore[operator]
