"""Reads beside retention: a delta read whose target is deleted or folded under it is noticed.

A state is read in two steps, the checkpoint and then the history of its delta channels; what is
deleted in between reads back as empty, without an error. Here one lookup after the history tells. A
read of the latest state is then done once more, on whatever is the latest by then; a read of an
explicit id never moves to another checkpoint.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver, DeltaChannelHistory

from savermark.errors import BackendError, UsageError
from savermark.history.lineage import is_reserved

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple
    from langgraph.pregel import Pregel
    from langgraph.types import StateSnapshot

Histories = Mapping[str, DeltaChannelHistory]
S = TypeVar("S", bound=BaseCheckpointSaver[Any])
Key = tuple[str, str, str]  # thread, namespace, checkpoint id

# The checkpoints that this reader was given last, and the channels they stored then. Of the reader
# and not of the saver: another one may have been given the same checkpoint in another form since.
_SEEN: ContextVar[tuple[tuple[Key, frozenset[str]], ...]] = ContextVar("savermark_seen", default=())
_REMEMBERED = 16  # a state with subgraphs reads those of several namespaces in between


class Vanished(BackendError):
    """The target of a read changed between its two steps: deleted (`gone`), or folded."""

    def __init__(self, key: Key, gone: bool) -> None:
        self.gone = gone
        what = "deleted" if gone else "folded"
        super().__init__(
            f"thread {key[0]!r}: checkpoint {key[2]} was {what} while it was read: read again"
        )


@dataclass(frozen=True, slots=True)
class SteadyRead:
    """A checkpoint and the histories of its delta channels, of one moment."""

    tuple: CheckpointTuple
    histories: Histories


class SteadyHistory(BaseCheckpointSaver[Any]):
    """To mix in before a saver's class: a history whose target changed meanwhile is no answer.

    One lookup more for each history. Raises `Vanished`.
    """

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The saver's own, noted for the history that follows."""
        return _noted(super().get_tuple(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The saver's own, noted for the history that follows."""
        return _noted(await super().aget_tuple(config))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """The saver's own, if its target is still what the reader was given."""
        key = _key(config)
        if key is None or not channels:
            return super().get_delta_channel_history(config=config, channels=channels)
        stored = _seen(key)
        if stored is None:
            stored = _stored(super().get_tuple(config))
        found = super().get_delta_channel_history(config=config, channels=channels)
        _check(key, channels, stored, _stored(super().get_tuple(config)))
        return found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """The saver's own, if its target is still what the reader was given."""
        key = _key(config)
        if key is None or not channels:
            return await super().aget_delta_channel_history(config=config, channels=channels)
        stored = _seen(key)
        if stored is None:
            stored = _stored(await super().aget_tuple(config))
        found = await super().aget_delta_channel_history(config=config, channels=channels)
        _check(key, channels, stored, _stored(await super().aget_tuple(config)))
        return found


def with_steady(saver: S) -> S:
    """A saver of a subclass over the same store, connection and lock, whose histories are steady.

    `saver` itself stays as it is. Raises `UsageError` for one of our wrappers.
    """
    if isinstance(saver, SteadyHistory):
        return saver
    if getattr(saver, "inner", None) is not None:
        raise UsageError("give the saver inside the wrapper")
    kind, made = type(saver), copy.copy(saver)
    made.__class__ = type(f"Steady{kind.__name__}", (SteadyHistory, kind), {"__slots__": ()})
    return made


def steady_state(
    graph: Pregel[Any, Any, Any, Any], config: RunnableConfig, *, subgraphs: bool = False
) -> StateSnapshot:
    """`graph.get_state` that is right beside retention.

    Raises `Vanished` when the explicit id was deleted meanwhile, or the latest a second time.
    """
    steady = _steady(graph)
    try:
        return steady.get_state(config, subgraphs=subgraphs)
    except Vanished as error:
        _stay(error, config)
    return steady.get_state(config, subgraphs=subgraphs)


async def asteady_state(
    graph: Pregel[Any, Any, Any, Any], config: RunnableConfig, *, subgraphs: bool = False
) -> StateSnapshot:
    """The async twin of `steady_state`."""
    steady = _steady(graph)
    try:
        return await steady.aget_state(config, subgraphs=subgraphs)
    except Vanished as error:
        _stay(error, config)
    return await steady.aget_state(config, subgraphs=subgraphs)


def steady_read(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str] | None = None
) -> SteadyRead | None:
    """A checkpoint with its histories, without a graph; None when it is not stored.

    Without `channels` those that have a version and no value. Raises `Vanished` as `steady_state`.
    """
    steady = with_steady(saver)
    for attempt in range(2):
        found = steady.get_tuple(config)
        if found is None:
            break
        names = _absent(found) if channels is None else channels
        try:
            histories = steady.get_delta_channel_history(config=found.config, channels=names)
            return SteadyRead(found, histories)
        except Vanished as error:
            _stay(error, config, last=attempt == 1)
    return None


async def asteady_read(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str] | None = None
) -> SteadyRead | None:
    """The async twin of `steady_read`."""
    steady = with_steady(saver)
    for attempt in range(2):
        found = await steady.aget_tuple(config)
        if found is None:
            break
        names = _absent(found) if channels is None else channels
        try:
            histories = await steady.aget_delta_channel_history(config=found.config, channels=names)
            return SteadyRead(found, histories)
        except Vanished as error:
            _stay(error, config, last=attempt == 1)
    return None


def _steady(graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
    saver = graph.checkpointer
    if not isinstance(saver, BaseCheckpointSaver):
        raise UsageError("the graph has no saver of its own: compile it with one")
    return graph.copy({"checkpointer": with_steady(saver)})


def _stay(error: Vanished, config: RunnableConfig, last: bool = False) -> None:
    """Raise where reading again would move to another checkpoint, or was done already."""
    if last or (error.gone and config["configurable"].get("checkpoint_id")):
        raise error


def _noted(found: CheckpointTuple | None) -> CheckpointTuple | None:
    key, stored = _key(found.config) if found else None, _stored(found)
    if key is not None and stored is not None:
        others = [seen for seen in _SEEN.get() if seen[0] != key]
        _SEEN.set(((key, stored), *others[: _REMEMBERED - 1]))
    return found


def _key(config: RunnableConfig) -> Key | None:
    where = config["configurable"]
    if not where.get("checkpoint_id"):
        return None
    return str(where["thread_id"]), where.get("checkpoint_ns", ""), where["checkpoint_id"]


def _seen(key: Key) -> frozenset[str] | None:
    return dict(_SEEN.get()).get(key)


def _stored(found: CheckpointTuple | None) -> frozenset[str] | None:
    return frozenset(found.checkpoint["channel_values"]) if found else None


def _check(
    key: Key, channels: Sequence[str], before: frozenset[str] | None, after: frozenset[str] | None
) -> None:
    if before is None:  # it was not there to begin with: the saver's own answer to that holds
        return
    if after is None:
        raise Vanished(key, gone=True)
    if (after - before).intersection(channels):
        raise Vanished(key, gone=False)


def _absent(found: CheckpointTuple) -> list[str]:
    values = found.checkpoint["channel_values"]
    names = found.checkpoint["channel_versions"]
    return [name for name in names if name not in values and not is_reserved(name)]
