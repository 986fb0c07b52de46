"""`cached`: histories of explicit checkpoints from a bounded cache, read by another walk on a miss.

The cache belongs to a store, so it lies on the saver, and shallow clones of the saver share it.
Whoever deletes, folds, grafts or moves rows by other ways than this saver's own methods passes
`walk("cached").cache(saver)` to the retention engine as its `lifecycle`.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from savermark.history.cache import HistoryCache, acached_history, cached_history
from savermark.history.kinds import unwrapped
from savermark.history.walks.native import BaseWalk, NativeWalk
from savermark.history.walks.onepass import ONE_PASS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.runnables import RunnableConfig

    from savermark.history.walks.base import Histories, Walk

_HELD = "_savermark_history_cache"
_INNER: tuple[Walk, ...] = (ONE_PASS, NativeWalk(), BaseWalk())


class CachedWalk:
    """Reads through a cache; what is not in it, by the fastest walk that can read the saver."""

    name = "cached"
    title = "a bounded cache of explicit checkpoints, filled by the fastest walk there is"

    def supports(self, saver: BaseCheckpointSaver[Any]) -> bool:
        """Every saver."""
        return True

    def cache(self, saver: BaseCheckpointSaver[Any]) -> HistoryCache:
        """The cache of this saver and its clones; a `CacheLifecycle`."""
        held: HistoryCache = vars(unwrapped(saver)).setdefault(_HELD, HistoryCache())
        return held

    def history(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """From the cache, from a warm entry near by, or from the walk below."""
        inner = _inner(saver)
        return cached_history(
            saver,
            self.cache(saver),
            config,
            channels,
            lambda where, names: inner.history(saver, where, names),
        )

    async def ahistory(
        self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, channels: Sequence[str]
    ) -> Histories:
        """`history` over an async saver."""
        inner = _inner(saver)
        return await acached_history(
            saver,
            self.cache(saver),
            config,
            channels,
            lambda where, names: inner.ahistory(saver, where, names),
        )

    def methods(self, kind: type[BaseCheckpointSaver[Any]]) -> dict[str, Any]:
        """What `with_walk` adds to a saver's class: its own deletions forget first.

        Only what the class itself can do is added, so that it claims no more than before.
        """
        added: dict[str, Any] = {}
        for name, (given, forget) in _DELETING.items():
            for method in (name, f"a{name}"):
                own = getattr(kind, method, None)
                if own is not None and own is not getattr(BaseCheckpointSaver, method, None):
                    added[method] = _forgetting(self, own, given, forget)
        return added


def _inner(saver: BaseCheckpointSaver[Any]) -> Walk:
    return next(walk for walk in _INNER if walk.supports(saver))


def _forgetting(
    walk: CachedWalk,
    own: Callable[..., Any],
    given: str,
    forget: Callable[[HistoryCache, Any], None],
) -> Callable[..., Any]:
    @wraps(own)
    def method(self: Any, *args: Any, **named: Any) -> Any:
        forget(walk.cache(self), args[0] if args else named.get(given))
        return own(self, *args, **named)

    return method


def _thread(cache: HistoryCache, thread_id: Any) -> None:
    cache.invalidate(thread_id)


def _all(cache: HistoryCache, _: Any) -> None:
    # Which threads the runs touched, or whether the ids can be read twice, is not known here.
    cache.clear()


# Method -> its first parameter, and what to forget.
_DELETING = {
    "delete_thread": ("thread_id", _thread),
    "prune": ("thread_ids", _all),
    "delete_for_runs": ("run_ids", _all),
}
