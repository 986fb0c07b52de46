"""What a one-pass walk has found, while it goes and at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import DeltaChannelHistory

from savermark.history.lineage import LineageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import RunnableConfig

Write = tuple[str, str, Any]  # task id, channel, value


@dataclass(frozen=True, slots=True)
class Where:
    """What a walk is asked: a namespace of a thread, a checkpoint (None: the newest), channels."""

    thread: Any
    space: str
    id: str | None
    channels: tuple[str, ...]

    @classmethod
    def of(cls, config: RunnableConfig, channels: Sequence[str]) -> Where:
        """By the rules of a saver's own methods."""
        named = config["configurable"]
        return cls(
            named["thread_id"],
            named.get("checkpoint_ns", ""),
            named.get("checkpoint_id") or None,
            tuple(dict.fromkeys(channels)),
        )

    def circle(self, at: str) -> LineageError:
        """The error of a walk that comes to a checkpoint twice."""
        return LineageError.circle(str(self.thread), self.space, at)


@dataclass(frozen=True)
class Trail:
    """The histories, and where a chain ended at a parent that is not stored.

    Such a chain reads as if its last checkpoint were the root, as every saver reads it; `broken`
    names the missing parent by channel.
    """

    histories: dict[str, DeltaChannelHistory] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
