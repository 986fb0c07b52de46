"""Threads built checkpoint by checkpoint through a saver's own methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from savermark.conformance.model import fail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.runnables import RunnableConfig

    from savermark.conformance.apis import Api


def snapshot(*items: Any) -> _DeltaSnapshot:
    """A snapshot of a list."""
    return _DeltaSnapshot(list(items))


class Thread:
    """One namespace of one thread; checkpoints go by short names and have time-ordered ids.

    A channel's version moves where `values` or `moved` name it; otherwise a checkpoint has its
    parent's, as the runtime leaves it.
    """

    def __init__(self, api: Api, thread_id: str | None = None, space: str = "") -> None:
        self.api = api
        self.id = thread_id or str(uuid4())
        self.space = space
        self.ids: dict[str, str] = {}
        self._versions: dict[str, dict[str, Any]] = {}

    def at(self, name: str | None = None) -> RunnableConfig:
        """The config of a checkpoint, or of the newest."""
        where = {"thread_id": self.id, "checkpoint_ns": self.space}
        if name is not None:
            where["checkpoint_id"] = self.ids[name]
        return {"configurable": where}

    async def put(
        self,
        name: str,
        parent: str | None = None,
        values: Mapping[str, Any] | None = None,
        *,
        moved: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        ident: str | None = None,
    ) -> RunnableConfig:
        """Store a checkpoint; returns the config that the saver gave."""
        held = dict(values or {})
        known = self._versions.get(parent or "", {})
        step = self.api.saver.get_next_version
        new = {c: step(known.get(c), None) for c in dict.fromkeys([*held, *moved])}
        self.ids[name] = ident or str(uuid6(clock_seq=len(self.ids)))
        self._versions[name] = {**known, **new}
        checkpoint = {
            "v": 4,
            "ts": "2026-01-01T00:00:00+00:00",
            "id": self.ids[name],
            "channel_values": held,
            "channel_versions": self._versions[name],
            "versions_seen": {},
            "updated_channels": None,
        }
        told = {"source": "loop", "step": len(self.ids) - 2, "parents": {}, **(metadata or {})}
        stored: RunnableConfig = await self.api.call("put", self.at(parent), checkpoint, told, new)
        return stored

    async def write(
        self, name: str, *items: tuple[str, Any], task: str = "task", path: str = ""
    ) -> None:
        """Store the writes of one task on a checkpoint."""
        await self.api.call("put_writes", self.at(name), list(items), task, path)

    async def tuple(self, name: str | None = None) -> Any:
        """The saver's tuple of a checkpoint, or of the newest, which must be there."""
        found = await self.found(name)
        if found is None:
            fail(f"checkpoint {name or 'latest'} was stored and is not found")
        return found

    async def found(self, name: str | None = None) -> Any:
        """The saver's tuple, or None."""
        return await self.api.call("get_tuple", self.at(name))

    async def history(self, name: str | None, *channels: str) -> dict[str, Any]:
        """What the saver's history walk finds."""
        found: dict[str, Any] = await self.api.call(
            "get_delta_channel_history", config=self.at(name), channels=list(channels)
        )
        return found

    async def values(self, name: str | None, channel: str = "d") -> list[Any]:
        """The values of the writes that the walk finds for a channel."""
        found = (await self.history(name, channel)).get(channel, {})
        return [write[2] for write in found.get("writes", [])]
