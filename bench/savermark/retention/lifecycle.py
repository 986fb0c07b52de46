"""Caches of histories and retention: whoever deletes rows has them forgotten first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from savermark.history.cache import HistoryCache
from savermark.history.cached import CachedHistory, with_cache

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.retention.records import CacheLifecycle

__all__ = [
    "NO_CACHE",
    "CachedHistory",
    "HistoryCache",
    "NoCache",
    "Several",
    "lifecycle_of",
    "with_cache",
]


class NoCache:
    """The lifecycle of nothing."""

    def invalidate(self, thread_id: str) -> None:
        """There is nothing to forget."""


NO_CACHE = NoCache()


class Several:
    """The lifecycles of several caches; the first that fails ends it, and with it the deletion."""

    def __init__(self, *parts: CacheLifecycle) -> None:
        self.parts = parts

    def invalidate(self, thread_id: str) -> None:
        """Forget the thread in each of them."""
        for part in self.parts:
            part.invalidate(thread_id)


def lifecycle_of(
    saver: BaseCheckpointSaver[Any], given: CacheLifecycle | None = None
) -> CacheLifecycle:
    """What to call: the given lifecycle and those of the caches that lie on a saver, if any.

    A saver or wrapper counts that has `invalidate` itself, and one that holds a `HistoryCache`.
    """
    found: list[Any] = [] if given is None else [given]
    layer: Any = saver
    while layer is not None:
        # Of the class, because a wrapper may pass every attribute on to what it wraps.
        if callable(getattr(type(layer), "invalidate", None)):
            found.append(layer)
        found += [held for held in vars(layer).values() if isinstance(held, HistoryCache)]
        layer = vars(layer).get("inner")
    parts = cast("list[CacheLifecycle]", list({id(part): part for part in found}.values()))
    if not parts:
        return NO_CACHE
    return parts[0] if len(parts) == 1 else Several(*parts)
