"""Savers that read delta histories through a cache."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver

from savermark.errors import UsageError
from savermark.history.cache import Histories, HistoryCache, acached_history, cached_history

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

S = TypeVar("S", bound=BaseCheckpointSaver[Any])
# Set while an async walk of the saver's own runs: some answer through their sync method.
_WALKING: ContextVar[bool] = ContextVar("savermark_walking", default=False)


class CachedHistory(BaseCheckpointSaver[Any]):
    """To mix in before a saver's class: `class Mine(CachedHistory, SqliteSaver): cache = ...`.

    What the saver itself deletes is forgotten first.
    """

    cache: HistoryCache

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("prune", "aprune", "delete_for_runs", "adelete_for_runs"):
            # Only what the saver has, so that nobody takes it for able to do more.
            if getattr(cls, name) is not getattr(BaseCheckpointSaver, name):
                setattr(cls, name, _clearing(getattr(cls, name)))

    def invalidate(self, thread_id: str) -> None:
        """Forget a thread's histories (`CacheLifecycle`)."""
        self.cache.invalidate(thread_id)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """Through the cache where an id is given."""
        own = super().get_delta_channel_history
        if _WALKING.get():
            return own(config=config, channels=channels)
        return cached_history(
            self, self.cache, config, channels, lambda c, n: own(config=c, channels=n)
        )

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """Through the cache where an id is given."""
        own = super().aget_delta_channel_history

        async def walk(where: RunnableConfig, names: Sequence[str]) -> Histories:
            token = _WALKING.set(True)
            try:
                return await own(config=where, channels=names)
            finally:
                _WALKING.reset(token)

        return await acached_history(self, self.cache, config, channels, walk)

    def delete_thread(self, thread_id: str) -> None:
        """Forget the thread, then delete it."""
        self.cache.invalidate(thread_id)
        super().delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """Forget the thread, then delete it."""
        self.cache.invalidate(thread_id)
        await super().adelete_thread(thread_id)


def with_cache(saver: S, cache: HistoryCache | None = None) -> S:
    """A saver of a subclass over the same store, connection and lock, that reads through `cache`.

    `saver` itself stays as it is. Raises `UsageError` for one of our wrappers.
    """
    if getattr(saver, "inner", None) is not None:
        raise UsageError("put the cache on the saver inside the wrapper, and wrap that")
    kind, made = type(saver), copy.copy(saver)
    added = {"cache": cache or HistoryCache(), "__slots__": ()}
    made.__class__ = type(f"Cached{kind.__name__}", (CachedHistory, kind), added)
    return made


def _clearing(method: Callable[..., Any]) -> Callable[..., Any]:
    def clearing(self: CachedHistory, *args: Any, **kwargs: Any) -> Any:
        self.cache.clear()  # of which threads the rows are is not told
        return method(self, *args, **kwargs)

    return clearing
