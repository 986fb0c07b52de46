"""Backend `null`: a saver that keeps nothing. What a run costs on it is the harness's own cost."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from langgraph.checkpoint.base import BaseCheckpointSaver

from savermark.backends.base import Backend, Location, Store
from savermark.backends.plain import PlainStore
from savermark.backends.shared import versions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol


class NullSaver(BaseCheckpointSaver[int]):
    """Accepts every write and finds nothing: a graph runs, and each run starts from empty state."""

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Nothing was kept."""
        return None

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Nothing was kept."""
        return None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """An empty history."""
        return iter(())

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """An empty history."""
        empty: tuple[CheckpointTuple, ...] = ()
        for item in empty:
            yield item

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Drops the checkpoint; answers with the config that would name it."""
        configurable = config["configurable"]
        return {
            "configurable": {
                "thread_id": configurable["thread_id"],
                "checkpoint_ns": configurable.get("checkpoint_ns", ""),
                "checkpoint_id": checkpoint["id"],
            }
        }

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Drops the checkpoint; answers with the config that would name it."""
        return self.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Drops the writes."""

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Drops the writes."""

    def delete_thread(self, thread_id: str) -> None:
        """There is nothing to delete."""

    async def adelete_thread(self, thread_id: str) -> None:
        """There is nothing to delete."""


class NullStore(PlainStore):
    """A store without contents."""

    label = "null"

    def __init__(self, location: Location) -> None:
        self.location = location

    @contextmanager
    def saver(self, serde: SerializerProtocol | None = None) -> Iterator[BaseCheckpointSaver[Any]]:
        """A `NullSaver`; it never serializes, whatever the serializer."""
        yield NullSaver(serde=serde)

    @asynccontextmanager
    async def asaver(
        self, serde: SerializerProtocol | None = None
    ) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        """The same saver: both apis live on it."""
        yield NullSaver(serde=serde)

    def describe(self) -> dict[str, Any]:
        """Versions only; there is nothing to set."""
        return {"backend": self.label, "versions": versions("langgraph-checkpoint")}


class NullBackend(Backend):
    """Keeps nothing; shows the harness's own cost."""

    name: ClassVar[str] = "null"
    title: ClassVar[str] = "keeps nothing: shows the harness's own cost"
    store_type: ClassVar[type[Store]] = NullStore

    @classmethod
    def create(cls, location: Location) -> Store:
        """A store that holds nothing and never will."""
        return NullStore(location)

    @classmethod
    def attach(cls, location: Location) -> Store:
        """The same as `create`: there is nothing to find."""
        return NullStore(location)
