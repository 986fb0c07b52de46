"""Reads to be made, and the two drivers that make them: on a sync and on an async saver.

What is to be read is decided in generators that yield an `Ask` and are sent its answer.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from savermark.errors import Unsupported
from savermark.history.arows import AsyncRows, arow_access
from savermark.history.image import CheckpointRow
from savermark.history.rows import RowAccess, row_access

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

    from savermark.history.image import ThreadImage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """One read: a checkpoint (None: the newest), histories, a graph's state, a thread's image, or
    what `list` tells of its checkpoints where the tables are not known."""

    what: Literal["tuple", "history", "state", "image", "rows"]
    thread_id: str
    checkpoint_ns: str = ""
    checkpoint_id: str | None = None
    channels: tuple[str, ...] = ()

    @property
    def config(self) -> RunnableConfig:
        """The config that names the checkpoint."""
        where = {"thread_id": self.thread_id, "checkpoint_ns": self.checkpoint_ns}
        if self.checkpoint_id is not None:
            where["checkpoint_id"] = self.checkpoint_id
        return {"configurable": where}

    def image(self, rows: RowAccess) -> ThreadImage:
        """The thread's image."""
        return rows.image(self.thread_id)


Reader = Generator[Ask, Any, T]


class Failure(str):
    """The answer to a read that raised: what it said, in one line."""

    __slots__ = ()


def id_of(found: CheckpointTuple) -> str:
    """The id of a checkpoint."""
    return str(found.config["configurable"].get("checkpoint_id") or found.checkpoint["id"])


def drive(saver: BaseCheckpointSaver[Any], graph: Any, work: Reader[T]) -> T:
    """Carry out the reads of `work` on a sync saver."""
    answer: Any = None
    while True:
        try:
            ask = work.send(answer)
        except StopIteration as stop:
            return cast("T", stop.value)
        answer = _answer(saver, graph, ask)


def _answer(saver: BaseCheckpointSaver[Any], graph: Any, ask: Ask) -> Any:
    if ask.what == "image":
        try:
            return ask.image(row_access(saver))
        except Unsupported:
            return None
    try:
        match ask.what:
            case "tuple":
                return saver.get_tuple(ask.config)
            case "history":
                return saver.get_delta_channel_history(config=ask.config, channels=ask.channels)
            case "state":
                return graph.get_state(ask.config)
            case _:
                return [_row(found) for found in saver.list(_thread(ask))]
    except Exception as error:  # what a damaged row or a foreign saver raises is what it reads as
        return Failure(f"{type(error).__name__}: {error}".splitlines()[0])


async def adrive(saver: BaseCheckpointSaver[Any], graph: Any, work: Reader[T]) -> T:
    """The async twin of `drive`."""
    answer: Any = None
    async with AsyncExitStack() as stack:
        opened: list[AsyncRows | None] = []  # the rows, once asked for
        while True:
            try:
                ask = work.send(answer)
            except StopIteration as stop:
                return cast("T", stop.value)
            if ask.what == "image":
                if not opened:
                    opened.append(await _opened(saver, stack))
                answer = opened[0] and await opened[0].run(ask.image)
            else:
                answer = await _aanswer(saver, graph, ask)


async def _opened(saver: BaseCheckpointSaver[Any], stack: AsyncExitStack) -> AsyncRows | None:
    try:
        return await stack.enter_async_context(arow_access(saver))
    except Unsupported:
        return None


async def _aanswer(saver: BaseCheckpointSaver[Any], graph: Any, ask: Ask) -> Any:
    try:
        match ask.what:
            case "tuple":
                return await saver.aget_tuple(ask.config)
            case "history":
                return await saver.aget_delta_channel_history(
                    config=ask.config, channels=ask.channels
                )
            case "state":
                return await graph.aget_state(ask.config)
            case _:
                return [_row(found) async for found in saver.alist(_thread(ask))]
    except Exception as error:  # as in `_answer`
        return Failure(f"{type(error).__name__}: {error}".splitlines()[0])


def _row(found: CheckpointTuple) -> CheckpointRow:
    """A checkpoint as its tuple tells it, without sizes."""
    values = found.checkpoint.get("channel_values") or {}
    parent = found.parent_config
    return CheckpointRow(
        found.config["configurable"].get("checkpoint_ns", ""),
        id_of(found),
        parent["configurable"]["checkpoint_id"] if parent else None,
        {k: str(v) for k, v in (found.checkpoint.get("channel_versions") or {}).items()},
        frozenset(values),
        found.metadata or {},
        found.checkpoint.get("v") or 1,
        snapshots=frozenset(k for k, value in values.items() if isinstance(value, _DeltaSnapshot)),
    )


def _thread(ask: Ask) -> RunnableConfig:
    return {"configurable": {"thread_id": ask.thread_id}}
