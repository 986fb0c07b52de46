"""A digest of graph state that is the same for the oracle's plain data and for real values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from savermark.script.foreseen import given_id, given_text, is_private, is_volatile


def state_digest(values: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of a state's canonical form.

    A message counts as (type, id, content, tool calls, tool call id, name), whether it is a
    `savermark.script.Message` or a LangChain message. An empty channel equals an absent one:
    runtimes differ in whether they list a channel that nothing was written to. What a runtime adds
    of its own (`savermark.script.foreseen`) does not count. Raises `TypeError` for a value that
    has no canonical form.
    """
    kept = {k: v for k, v in values.items() if not (is_private(k) or _empty(v))}
    text = json.dumps(_plain(kept), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, (list, tuple, dict, str)) and not value)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if not is_volatile(str(k))}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if hasattr(value, "content") and hasattr(value, "type"):
        return {"message": _message(value)}
    raise TypeError(f"no canonical form for {type(value).__name__}")


def _message(message: Any) -> list[Any]:
    content = message.content
    calls = getattr(message, "tool_calls", None) or ()
    return [
        message.type,
        given_id(message.id),
        given_text(content) if isinstance(content, str) else _plain(content),
        [[call["name"], _plain(call["args"]), call["id"]] for call in calls],
        getattr(message, "tool_call_id", None),
        getattr(message, "name", None),
    ]
