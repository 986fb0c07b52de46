"""Plain script messages to and from LangChain messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from savermark.script import Message


def to_langchain(message: Message) -> BaseMessage:
    """The LangChain message of a script's plain one."""
    if message.type == "human":
        return HumanMessage(message.content, id=message.id)
    if message.type == "system":
        return SystemMessage(message.content, id=message.id)
    if message.type == "tool":
        return ToolMessage(
            message.content,
            tool_call_id=message.tool_call_id or "",
            name=message.name,
            id=message.id,
        )
    calls: Any = [{"type": "tool_call", **call} for call in message.tool_calls]
    return AIMessage(message.content, tool_calls=calls, id=message.id)


def to_state(values: Mapping[str, Any]) -> dict[str, Any]:
    """A state update with each script message, alone or in a list, as a LangChain message."""
    return {key: _convert(value) for key, value in values.items()}


def _convert(value: Any) -> Any:
    if isinstance(value, Message):
        return to_langchain(value)
    if isinstance(value, (list, tuple)):
        return [_convert(item) for item in value]
    return value
