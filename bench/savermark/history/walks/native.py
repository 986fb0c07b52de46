"""The two walks that are there already: the base class's, and a saver's own override."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from savermark.errors import Unsupported
from savermark.history.walks.base import ASYNC, SYNC, Histories, Walked, api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import RunnableConfig


class BaseWalk:
    """The walk that every saver inherits: one `get_tuple` an ancestor.

    It is the upstream code and behaves as that does: it never ends on a chain that is a circle.
    """

    name = "base"
    title = "the base class's walk: one read of a whole checkpoint an ancestor"

    def supports(self, saver: BaseCheckpointSaver[Any]) -> bool:
        """Every saver."""
        return True

    def history(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """The base class's method on this saver."""
        with api(saver, "ahistory()"):
            walk = BaseCheckpointSaver.get_delta_channel_history
            return walk(saver, config=config, channels=channels)

    async def ahistory(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """The base class's async method on this saver."""
        with api(saver, "history()"):
            walk = BaseCheckpointSaver.aget_delta_channel_history
            return await walk(saver, config=config, channels=channels)


class NativeWalk:
    """The walk that the saver's own class brings, as if no walk of ours stood before it."""

    name = "native"
    title = "the saver's own walk"

    def supports(self, saver: BaseCheckpointSaver[Any]) -> bool:
        """A saver that overrides the walk."""
        return _own(saver, SYNC) is not None or _own(saver, ASYNC) is not None

    def history(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """The saver's own override."""
        with api(saver, "ahistory()"):
            found: Histories = _owned(saver, SYNC)(config=config, channels=channels)
            return found

    async def ahistory(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """The saver's own async override."""
        with api(saver, "history()"):
            found: Histories = await _owned(saver, ASYNC)(config=config, channels=channels)
            return found


def _owned(saver: BaseCheckpointSaver[Any], method: str) -> Any:
    found = _own(saver, method)
    if found is None:
        raise Unsupported(
            f"{type(saver).__name__} does not override {method}(): use the walk 'base'"
        )
    return found


def _own(saver: BaseCheckpointSaver[Any], method: str) -> Any:
    """The method of the first class that brings one, ours and the base class left out."""
    for cls in type(saver).__mro__:
        if cls is BaseCheckpointSaver:
            return None
        if method in vars(cls) and not issubclass(cls, Walked):
            return vars(cls)[method].__get__(saver, type(saver))
    return None
