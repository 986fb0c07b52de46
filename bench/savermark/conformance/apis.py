"""A saver through its sync or its async methods, so that a check is written once.

Checks are coroutines. On the sync api nothing they await ever waits, so `finish` runs them without
an event loop, as a sync application would call the saver.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver

T = TypeVar("T")

METHODS = (
    "get_tuple",
    "list",
    "put",
    "put_writes",
    "delete_thread",
    "delete_for_runs",
    "copy_thread",
    "prune",
    "get_delta_channel_history",
)


class Api:
    """One api of a saver. Methods are named as in the sync api; so are those of a graph."""

    name = ""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self.saver = saver
        self._remembered: dict[str, Any] = {}

    async def on(self, target: Any, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of a saver or a graph."""
        raise NotImplementedError

    async def items(self, target: Any, method: str, *args: Any, **options: Any) -> list[Any]:
        """What a listing method yields, read to its end."""
        raise NotImplementedError

    async def other(self, method: str, *args: Any, **options: Any) -> Any:
        """The same method of the saver through its other api; a listing is read to its end."""
        raise NotImplementedError

    def offers(self, method: str) -> bool:
        """Whether the saver has this method in this api, and not the base class's refusal."""
        raise NotImplementedError

    def like(self, saver: BaseCheckpointSaver[Any]) -> Api:
        """Another saver through the same api."""
        return type(self)(saver)

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the saver."""
        return await self.on(self.saver, method, *args, **options)

    async def listed(self, config: Any, **options: Any) -> list[Any]:
        """The saver's `list`, read to its end."""
        return await self.items(self.saver, "list", config, **options)

    async def remembered(self, key: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """What several checks look at, made once; what it raises is raised each time."""
        if key not in self._remembered:
            try:
                self._remembered[key] = await make()
            except Exception as error:  # kept, so that each check tells it
                self._remembered[key] = error
        found = self._remembered[key]
        if isinstance(found, Exception):
            raise found
        return found


class SyncApi(Api):
    """The sync methods."""

    name = "sync"

    async def on(self, target: Any, method: str, *args: Any, **options: Any) -> Any:
        """Called at once."""
        return getattr(target, method)(*args, **options)

    async def items(self, target: Any, method: str, *args: Any, **options: Any) -> list[Any]:
        """A plain iterator."""
        return list(getattr(target, method)(*args, **options))

    async def other(self, method: str, *args: Any, **options: Any) -> Any:
        """The async twin, on a loop of its own."""

        async def ask() -> Any:
            if method == "list":
                return [item async for item in self.saver.alist(*args, **options)]
            return await getattr(self.saver, f"a{method}")(*args, **options)

        return asyncio.run(ask())

    def offers(self, method: str) -> bool:
        """Compared with the base class."""
        return _overridden(self.saver, method)


class AsyncApi(Api):
    """The async methods."""

    name = "async"

    async def on(self, target: Any, method: str, *args: Any, **options: Any) -> Any:
        """Awaited."""
        return await getattr(target, f"a{method}")(*args, **options)

    async def items(self, target: Any, method: str, *args: Any, **options: Any) -> list[Any]:
        """An async iterator."""
        return [item async for item in getattr(target, f"a{method}")(*args, **options)]

    async def other(self, method: str, *args: Any, **options: Any) -> Any:
        """The sync twin, from another thread, as savers that live on a loop ask for."""

        def ask() -> Any:
            found = getattr(self.saver, method)(*args, **options)
            return list(found) if method == "list" else found

        return await asyncio.to_thread(ask)

    def offers(self, method: str) -> bool:
        """Compared with the base class."""
        return _overridden(self.saver, f"a{method}")


def _overridden(saver: Any, method: str) -> bool:
    return getattr(type(saver), method, None) is not getattr(BaseCheckpointSaver, method, None)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits. Raises `RuntimeError` for one that does."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    work.close()
    raise RuntimeError("a check of the sync api waited for something")


class AsyncFace(BaseCheckpointSaver[Any]):
    """A sync saver behind async methods that call the sync ones, for suites that only know async.

    What the saver does not override is not overridden here, so that what is found out by looking
    at the class stays true.
    """

    inner: BaseCheckpointSaver[Any]

    @classmethod
    def of(cls, saver: BaseCheckpointSaver[Any]) -> AsyncFace:
        """The face of this saver."""
        methods = {f"a{name}": _awaited(name) for name in METHODS if _overridden(saver, name)}
        face: AsyncFace = type(f"Async{type(saver).__name__}", (cls,), methods)(serde=saver.serde)
        face.inner = saver
        return face

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The inner saver's."""
        return self.inner.get_next_version(current, channel)


def _awaited(name: str) -> Any:
    if name == "list":

        async def listing(self: AsyncFace, *args: Any, **options: Any) -> AsyncIterator[Any]:
            for item in list(self.inner.list(*args, **options)):
                yield item

        return listing

    async def call(self: AsyncFace, *args: Any, **options: Any) -> Any:
        return getattr(self.inner, name)(*args, **options)

    return call
