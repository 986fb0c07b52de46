"""Caches of histories and retention: whoever deletes rows has them forgotten first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from savermark.history.cache import HistoryCache
from savermark.history.cached import CachedHistory, with_cache

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.retention.records import CacheLifecycle

__all__ = ["NO_CACHE", "CachedHistory", "HistoryCache", "NoCache", "lifecycle_of", "with_cache"]


class NoCache:
    """The lifecycle of nothing."""

    def invalidate(self, thread_id: str) -> None:
        """There is nothing to forget."""


NO_CACHE = NoCache()


def lifecycle_of(
    saver: BaseCheckpointSaver[Any], given: CacheLifecycle | None = None
) -> CacheLifecycle:
    """The lifecycle to call: the given one, else that of a caching saver or wrapper, else none."""
    if given is not None:
        return given
    layer: Any = saver
    while layer is not None:
        # Of the class, because a wrapper may pass every attribute on to what it wraps.
        if callable(getattr(type(layer), "invalidate", None)):
            return cast("CacheLifecycle", layer)
        layer = getattr(layer, "inner", None)
    return NO_CACHE
