"""`onepass`: our walk, one reading of the rows in as few statements as the engine allows."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from langgraph.checkpoint.base import BaseCheckpointSaver

from savermark.errors import Unsupported
from savermark.history.kinds import (
    is_async_postgres,
    is_async_sqlite,
    is_memory,
    is_sync_postgres,
    is_sync_sqlite,
    unwrapped,
)
from savermark.history.lineage import LineageError
from savermark.history.walks.base import Histories, Walked
from savermark.history.walks.found import Trail, Where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import RunnableConfig


class OnePassWalk:
    """Reads memory, SQLite and Postgres savers, sync and async; what the base walk answers.

    A chain that is a circle is a `LineageError`. One that names a parent that is not stored reads
    as if it began there, as with every saver; `trail` tells.
    """

    name = "onepass"
    title = "savermark's walk: one pass over the keys, one fetch of the writes"

    def supports(self, saver: BaseCheckpointSaver[Any]) -> bool:
        """The three core savers, whoever subclassed or wrapped them."""
        saver = unwrapped(saver)
        return any(kind(saver) for kind in (*_SYNC, *_ASYNC))

    def history(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """One statement or two; more where a thread has forks."""
        return self.trail(saver, config, channels).histories if channels else {}

    async def ahistory(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """`history` over an async saver."""
        return (await self.atrail(saver, config, channels)).histories if channels else {}

    def trail(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Trail:
        """The histories, and which chains name a parent that is not stored."""
        saver = unwrapped(saver)
        engine = _engine(saver, _SYNC)
        if engine is None:
            return self._bridged(saver, config, channels)
        found: Trail = engine.walk(saver, Where.of(config, channels))
        return found

    async def atrail(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Trail:
        """`trail` over an async saver."""
        saver = unwrapped(saver)
        engine = _engine(saver, _ASYNC)
        if engine is not None:
            found: Trail = await engine.awalk(saver, Where.of(config, channels))
            return found
        if is_memory(saver):
            return self.trail(saver, config, channels)
        raise _refused(saver, "history()")

    def _bridged(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Trail:
        """An async saver from another thread than its loop's, as its own methods allow."""
        loop = getattr(saver, "loop", None)
        if loop is None or not any(kind(saver) for kind in _ASYNC):
            raise _refused(saver, "a saver of langgraph's memory, sqlite or postgres packages")
        if _running() is loop:
            raise _refused(saver, "ahistory() inside its event loop")
        return asyncio.run_coroutine_threadsafe(self.atrail(saver, config, channels), loop).result()


_SYNC: dict[Any, str] = {
    is_memory: "memory",
    is_sync_sqlite: "sqlite",
    is_sync_postgres: "postgres",
}
_ASYNC: dict[Any, str] = {is_async_sqlite: "sqlite", is_async_postgres: "postgres"}


def _engine(saver: BaseCheckpointSaver[Any], kinds: dict[Any, str]) -> Any:
    """The module that walks savers of this class in one api, or None."""
    known = _engines.setdefault(type(saver), {})
    api = kinds is _ASYNC
    if api not in known:
        module = next((module for kind, module in kinds.items() if kind(saver)), None)
        # Only a saver whose package is installed can ask for its engine.
        known[api] = module and import_module(f"savermark.history.walks.{module}")
    return known[api]


# By class, and not kept alive: `with_walk` makes a class for each saver.
_engines: WeakKeyDictionary[type, dict[bool, Any]] = WeakKeyDictionary()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _refused(saver: BaseCheckpointSaver[Any], instead: str) -> Unsupported:
    return Unsupported(
        f"the walk 'onepass' cannot read a {type(saver).__name__} here: use {instead}"
    )


class OnePassHistory(Walked):
    """Put before a saver's class: `class FastPostgresSaver(OnePassHistory, PostgresSaver)`.

    Everything else stays the saver's: connections, pools, pipelines and its lock. With
    `refuse_broken` a chain that names a missing parent is a `LineageError` instead of a state
    that begins in the middle.
    """

    __slots__ = ()
    refuse_broken: bool = False

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """What the base class's method answers, in one pass."""
        if not channels:
            return {}
        trail = ONE_PASS.trail(cast("BaseCheckpointSaver[Any]", self), config, channels)
        return self._checked(trail, config)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """What the base class's method answers, in one pass."""
        if not channels:
            return {}
        trail = await ONE_PASS.atrail(cast("BaseCheckpointSaver[Any]", self), config, channels)
        return self._checked(trail, config)

    def _checked(self, trail: Trail, config: RunnableConfig) -> Histories:
        if trail.broken and self.refuse_broken:
            where = Where.of(config, ())
            missing = next(iter(trail.broken.values()))
            target = where.id or "the newest"
            raise LineageError.broken(str(where.thread), where.space, target, missing)
        return trail.histories


ONE_PASS = OnePassWalk()
