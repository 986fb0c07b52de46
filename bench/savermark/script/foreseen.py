"""What an agent runtime adds of its own, which no oracle can foresee: ids, notes, previews.

A digest leaves these out or reduces them to what they stand for, so that a state made by a real
agent runtime (`deepagents`) can be compared with one that was written down beforehand. Nothing
here matches anything that the suite's own graphs and payloads contain.
"""

from __future__ import annotations

import re

#: Keys of dictionaries inside a state that hold wall-clock times.
VOLATILE_KEYS = frozenset({"created_at", "modified_at"})

#: Where a summarizer keeps the conversation that it cut, under a random name.
HISTORY_FOLDER = "/conversation_history/"

#: Where a tool result goes that is too long for the conversation, under its call's id.
RESULTS_FOLDER = "/large_tool_results/"

_MINTED = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_RESULT = re.compile(rf"{RESULTS_FOLDER}[\w-]+")


def is_private(channel: str) -> bool:
    """Whether a channel is bookkeeping of the runtime's own."""
    return channel.startswith("_")


def is_volatile(key: str) -> bool:
    """Whether a dictionary's entry says something about the clock or a random name only."""
    return key in VOLATILE_KEYS or key.startswith(HISTORY_FOLDER)


def given_id(message_id: str | None) -> str | None:
    """The id that someone chose; None for one that the runtime minted (a UUID), or for none."""
    return None if not message_id or _MINTED.fullmatch(message_id) else message_id


def given_text(content: str) -> str:
    """The content; of a preview only the path of the whole, which the files must hold."""
    if RESULTS_FOLDER not in content:
        return content
    found = _RESULT.search(content)
    return found.group() if found else content
