"""Keep-sets through the public methods of any saver: the reference the SQL forms must equal.

One `get_tuple` an ancestor, so the time is that of the base class's own walk.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from savermark.errors import UsageError
from savermark.history.image import CheckpointRow
from savermark.history.kinds import is_memory, is_sqlite, unwrapped
from savermark.history.lineage import TASKS, Channels, KeepSet, check_channels, needs

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

    Ask = Generator[RunnableConfig, CheckpointTuple | None, KeepSet]


def keep_set(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Channels = "auto"
) -> KeepSet:
    """The ids of this namespace that must stay so that the checkpoint of `config` reads the same.

    Without a checkpoint id in `config` the newest checkpoint is meant; an unknown one needs
    nothing. The checkpoint and its ancestors back to the nearest stored value of each channel,
    that one included; with `channels=[]` the checkpoint alone. "auto" takes the channels from the
    data (`lineage.missing_values`). What counts as stored is the saver's own rule.

    Raises `LineageError` for a parent that is named and not stored, and for a circle, `UsageError`
    for a config without a thread.
    """
    plan, answer = _plan(saver, config, channels), None
    while True:
        try:
            asked = plan.send(answer)
        except StopIteration as stop:
            return cast("KeepSet", stop.value)
        answer = saver.get_tuple(asked)


async def akeep_set(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Channels = "auto"
) -> KeepSet:
    """The async twin of `keep_set`."""
    plan, answer = _plan(saver, config, channels), None
    while True:
        try:
            asked = plan.send(answer)
        except StopIteration as stop:
            return cast("KeepSet", stop.value)
        answer = await saver.aget_tuple(asked)


def _plan(saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Channels) -> Ask:
    check_channels(channels)
    none_stops = stops_at_none(saver)
    found = yield _located(saver, config)
    if found is None:
        return KeepSet()
    thread = str(found.config["configurable"]["thread_id"])
    target, sends = tuple_row(found, none_stops), False
    if target.v < 4 and found.parent_config is not None:
        parent = yield found.parent_config
        sends = parent is not None and any(w[1] == TASKS for w in parent.pending_writes or ())
    walk = needs(thread, target, channels, sends=sends)
    row: CheckpointRow | None = None
    while True:
        try:
            walk.send(row)
        except StopIteration as stop:
            return cast("KeepSet", stop.value)
        # `needs` asks for the parent of what it was last sent, and a saver knows how to name it.
        up = found.parent_config if found else None
        found = (yield up) if up else None
        row = tuple_row(found, none_stops) if found else None


def tuple_row(found: CheckpointTuple, none_stops: bool) -> CheckpointRow:
    """A checkpoint as its public tuple tells it."""
    checkpoint, parent = found.checkpoint, found.parent_config
    values: Mapping[str, Any] = checkpoint.get("channel_values") or {}
    nulls = {name for name, value in values.items() if value is None and not none_stops}
    versions = checkpoint.get("channel_versions") or {}
    return CheckpointRow(
        found.config["configurable"].get("checkpoint_ns", ""),
        found.config["configurable"].get("checkpoint_id") or checkpoint["id"],
        parent["configurable"]["checkpoint_id"] if parent else None,
        {name: str(version) for name, version in versions.items()},
        frozenset(values.keys() - nulls),
        found.metadata or {},
        checkpoint.get("v") or 1,
        nulls=frozenset(nulls),
        snapshots=frozenset(k for k, value in values.items() if isinstance(value, _DeltaSnapshot)),
    )


def stops_at_none(saver: BaseCheckpointSaver[Any]) -> bool:
    """Whether this saver's history walk takes a stored None for a seed.

    Memory, SQLite and the base class do, Postgres walks past. Of a saver with a walk of its own
    nothing is known: there a None does not end the walk either, which at worst keeps more.
    """
    saver = unwrapped(saver)
    own = type(saver).get_delta_channel_history is not BaseCheckpointSaver.get_delta_channel_history
    return is_memory(saver) or is_sqlite(saver) or not own


def _located(saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> RunnableConfig:
    """`config` cut to what names a checkpoint.

    An int as thread id works on memory alone, which keeps it apart from its text.
    """
    given = config.get("configurable", {})
    if "thread_id" not in given:
        raise UsageError('config["configurable"] must name a thread_id')
    thread = given["thread_id"]
    where: dict[str, Any] = {
        "thread_id": thread if is_memory(unwrapped(saver)) else str(thread),
        "checkpoint_ns": given.get("checkpoint_ns", ""),
    }
    if given.get("checkpoint_id"):
        where["checkpoint_id"] = given["checkpoint_id"]
    return {"configurable": where}
