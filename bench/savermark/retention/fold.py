"""Folding: the value of a delta channel at a checkpoint, made once and stored onto it.

A value is what an explicit read of the checkpoint gives: the seed and the writes between, through
the channel's own reducer. The live read of a head also applies its own pending writes, which would
then be applied twice. Values are read before the transaction that stores them, twice over, and
inside it the rows they were made from must still be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from langgraph._internal._typing import MISSING
from langgraph.channels.base import BaseChannel
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from savermark.backends.custom import load_object
from savermark.backends.shared import one_line
from savermark.errors import BackendError, ContractError, SavermarkError, UsageError, unknown
from savermark.history.image import COUNTERS, COUNTERS_OF_OLD
from savermark.history.kinds import is_memory, unwrapped
from savermark.history.lineage import keep_ids
from savermark.retention.records import Fold

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.history.lineage import CheckpointRow, ThreadImage
    from savermark.history.rows import Typed

ValueKey = tuple[str, str, str]  # namespace, checkpoint id, channel
Values = Mapping[ValueKey, "Typed"]
Channels = Mapping[str, BaseChannel[Any, Any, Any]]


class Materializer(Protocol):
    """Makes the values of folds.

    A channel that the application's graph does not rebuild from writes (it holds nothing there)
    has no entry. Raises a `SavermarkError` that says why where a value cannot be had.
    """

    def values(self, thread_id: str, folds: Sequence[Fold]) -> Values:
        """The serialized snapshot for each channel of each fold."""
        ...

    async def avalues(self, thread_id: str, folds: Sequence[Fold]) -> Values:
        """The async twin."""
        ...


@dataclass(frozen=True, slots=True)
class ChannelFold:
    """Reads histories through a saver and reduces them by the channels of each namespace."""

    saver: BaseCheckpointSaver[Any]
    channels_of: Callable[[str], Channels]

    def values(self, thread_id: str, folds: Sequence[Fold]) -> Values:
        """`Materializer.values`; each history is read twice."""
        found: dict[ValueKey, Typed] = {}
        for fold in folds:
            specs = self._specs(fold)
            config = _config(self.saver, thread_id, fold)
            read = self.saver.get_delta_channel_history
            first, again = (
                read(config=config, channels=list(specs)) if specs else {} for _ in range(2)
            )
            found.update(self._reduced(fold, specs, first, again))
        return found

    async def avalues(self, thread_id: str, folds: Sequence[Fold]) -> Values:
        """The async twin of `values`."""
        found: dict[ValueKey, Typed] = {}
        for fold in folds:
            specs = self._specs(fold)
            config = _config(self.saver, thread_id, fold)
            read = self.saver.aget_delta_channel_history
            first, again = [
                await read(config=config, channels=list(specs)) if specs else {} for _ in range(2)
            ]
            found.update(self._reduced(fold, specs, first, again))
        return found

    def _specs(self, fold: Fold) -> Channels:
        """The channels of a fold that a read rebuilds from writes."""
        known = self.channels_of(fold.checkpoint_ns)
        for name in fold.channels:
            if name not in known:
                raise UsageError(
                    f"namespace {fold.checkpoint_ns!r}: {unknown('channel', name, known)}; fold "
                    "with the graph that wrote the thread, or use keep-latest"
                )
        rebuilt = (DeltaChannel, BinaryOperatorAggregate)
        return {name: known[name] for name in fold.channels if isinstance(known[name], rebuilt)}

    def _reduced(
        self, fold: Fold, specs: Channels, first: Mapping[str, Any], again: Mapping[str, Any]
    ) -> dict[ValueKey, Typed]:
        found = {}
        for name, spec in specs.items():
            key = (fold.checkpoint_ns, fold.checkpoint_id, name)
            values = [_replayed(spec, history[name], key) for history in (first, again)]
            stored = [self.saver.serde.dumps_typed(_DeltaSnapshot(value)) for value in values]
            if stored[0] != stored[1] and not _equal(*values):
                raise ContractError(
                    f"channel {name!r}: two readings of checkpoint {fold.checkpoint_id} differ, so "
                    "its reducer is not deterministic: make it so, or use keep-latest"
                )
            found[key] = stored[0]
        return found


def graph_fold(graph: Any, saver: BaseCheckpointSaver[Any]) -> ChannelFold:
    """Folds through the channels of a compiled graph and of its subgraphs.

    The saver's history is read and the graph never runs. The saver may be another than the one
    the graph was compiled with.
    """
    spaces = {"": graph, **dict(graph.get_subgraphs(recurse=True))}

    def channels_of(space: str) -> Channels:
        name = "|".join(
            part.partition(":")[0] for part in space.split("|") if part and not part.isdecimal()
        )
        if name not in spaces:
            raise UsageError(unknown("subgraph", name, spaces) + "; fold with the thread's graph")
        return {
            key: spec
            for key, spec in spaces[name].channels.items()
            if isinstance(spec, BaseChannel)
        }

    return ChannelFold(saver, channels_of)


def reducer_fold(
    reducers: Mapping[str, DeltaChannel[Any] | Callable[[Any, Sequence[Any]], Any]],
    saver: BaseCheckpointSaver[Any],
) -> ChannelFold:
    """Folds through known reducers, the same in every namespace.

    A bare function is the reducer of a list, as `DeltaChannel(function)` would have it.
    """
    known = {
        name: each if isinstance(each, DeltaChannel) else DeltaChannel(each, list)
        for name, each in reducers.items()
    }
    return ChannelFold(saver, lambda space: known)


def load_graph(reference: str) -> Any:
    """The compiled graph that `package.module:name` names: a graph, a builder, or a function that
    returns one and needs no argument.

    Raises `UsageError` for anything else, `BackendError` when foreign code fails.
    """
    found = load_object(reference, "graph", "name")
    try:
        if not hasattr(found, "get_subgraphs") and not hasattr(found, "compile"):
            found = found() if callable(found) else found
        if not hasattr(found, "get_subgraphs") and hasattr(found, "compile"):
            found = found.compile()
    except SavermarkError:
        raise
    except Exception as error:  # foreign code: whatever it raises is its failure
        raise BackendError(f"graph {reference!r} cannot be built: {one_line(error)}") from error
    if not hasattr(found, "get_subgraphs") or not hasattr(found, "channels"):
        raise UsageError(
            f"graph {reference!r} is of type {type(found).__name__}: name a compiled graph, or a "
            "function without arguments that returns one"
        )
    return found


Evidence = tuple[tuple[object, ...], ...]


def evidence(image: ThreadImage, folds: Iterable[Fold]) -> Evidence:
    """The rows from which the values of these folds are made: equal rows make equal values.

    What the checkpoint itself owns is no part of its value and may grow meanwhile.
    """
    found = []
    for fold in folds:
        space, name = fold.checkpoint_ns, fold.checkpoint_id
        rows = [image.row(space, each) for each in sorted(keep_ids(image, space, name))]
        owned = [image.own_writes.get(row.key, ()) for row in rows if row]
        found.append((fold, *rows, *(owned[:-1] if rows else ())))
    return tuple(found)


def check_versions(image: ThreadImage, values: Values) -> None:
    """Raise `ContractError` where one version would have to hold two values.

    A copy of a checkpoint shares its versions, but also reads what was written on it since.
    """
    held: dict[tuple[str, str, str], tuple[str, Typed]] = {}
    for (space, name, channel), value in values.items():
        row = image.row(space, name)
        if row is None or channel not in row.versions:
            continue
        other, known = held.setdefault((space, channel, row.versions[channel]), (name, value))
        if known != value:
            raise ContractError(
                f"checkpoints {other} and {name} share a version of {channel!r} with different "
                "values: keep one of them, or use keep-latest"
            )


def without_counts(row: CheckpointRow, channels: Iterable[str]) -> dict[str, Any]:
    """The metadata of a checkpoint on which these channels were stored: counted from there on."""
    folded = set(channels)
    metadata = dict(row.metadata)
    for name in (COUNTERS, COUNTERS_OF_OLD):
        counts = metadata.pop(name, None)
        if isinstance(counts, Mapping):
            left = {channel: count for channel, count in counts.items() if channel not in folded}
            if left:
                metadata[name] = left
        elif counts is not None:
            metadata[name] = counts
    return metadata


def _replayed(spec: BaseChannel[Any, Any, Any], history: Mapping[str, Any], key: ValueKey) -> Any:
    """The runtime's own way to a value: seed, then writes, through the channel."""
    try:
        channel = spec.from_checkpoint(history.get("seed", MISSING))
        writes = history.get("writes", ())
        if isinstance(channel, DeltaChannel):
            channel.replay_writes(writes)
        else:
            for _, _, value in writes:  # one at a time, as a superstep takes one Overwrite only
                channel.update([value])
        return channel.get()
    except Exception as error:  # the reducer is the application's: whatever it raises
        raise ContractError(
            f"channel {key[2]!r} of checkpoint {key[1]} cannot be reduced ({one_line(error)}): "
            "give the graph that wrote it, or use keep-latest"
        ) from error


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # values of the application's own; what cannot be compared is not equal
        return False


def _config(saver: BaseCheckpointSaver[Any], thread_id: str, fold: Fold) -> RunnableConfig:
    inner = unwrapped(saver)
    thread: Any = thread_id
    if is_memory(inner):  # holds an int thread id as an int
        from savermark.history.memory import MemoryRows

        thread = MemoryRows(inner).raw(thread_id)
    where = {"checkpoint_ns": fold.checkpoint_ns, "checkpoint_id": fold.checkpoint_id}
    return {"configurable": {"thread_id": thread, **where}}
