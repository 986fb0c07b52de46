"""What a walk is: one way to rebuild the history of delta channels from a saver's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from langgraph.checkpoint.base import DeltaChannelHistory

from savermark.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver

Histories = Mapping[str, DeltaChannelHistory]
SYNC, ASYNC = "get_delta_channel_history", "aget_delta_channel_history"


class Walk(Protocol):
    """One strategy; it holds nothing of a saver, unless it says so.

    Both methods answer as `BaseCheckpointSaver.get_delta_channel_history` does: for each channel
    the writes between its seed and the checkpoint of `config`, oldest first, and the seed if any.
    They take the keys of the saver's own method (`thread_id`, `checkpoint_ns`, `checkpoint_id`).
    """

    name: str
    title: str  # one line, for people

    def supports(self, saver: BaseCheckpointSaver[Any]) -> bool:
        """Whether this walk can read this saver."""
        ...

    def history(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """The histories of these channels. Raises `Unsupported` for a saver it cannot read."""
        ...

    async def ahistory(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """`history` for a saver with an async api."""
        ...


@runtime_checkable
class Keeping(Protocol):
    """A walk that keeps something of a store between reads."""

    def cache(self, saver: BaseCheckpointSaver[Any]) -> Any:
        """What it keeps for this saver: made when first asked for, a `CacheLifecycle`."""
        ...

    def methods(self, kind: type[BaseCheckpointSaver[Any]]) -> dict[str, Any]:
        """What to add to a saver's class so that its own deletions forget first."""
        ...


class Walked:
    """Marks the classes of ours that put a walk before a saver's own; `native` looks past them."""

    __slots__ = ()


@contextmanager
def api(saver: BaseCheckpointSaver[Any], instead: str) -> Iterator[None]:
    """Turns a saver's refusal of one api into one line that names the other."""
    try:
        yield
    except NotImplementedError as error:
        name = type(saver).__name__
        raise Unsupported(f"a {name} does not have this api: use {instead} of the walk") from error
