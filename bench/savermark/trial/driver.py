"""The two ways to call a graph and a saver. A step is written once, as a coroutine.

`SyncDriver` carries a coroutine out without an event loop: none of its calls ever waits. So the
sync api is measured as a sync program uses it, and the two drivers differ by `await` alone.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from savermark.graphs.play import aplay, play

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from contextlib import AbstractAsyncContextManager

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.graph.state import CompiledStateGraph

    from savermark.backends.base import Store
    from savermark.graphs.play import Outcome, TurnClock
    from savermark.script import ThreadScript
    from savermark.spec import WorkloadSpec

    Graph = CompiledStateGraph[Any, Any, Any, Any]
    Saver = BaseCheckpointSaver[Any]

T = TypeVar("T")


class Driver(Protocol):
    """Calls one api of graphs and savers."""

    def run(self, steps: Coroutine[Any, Any, T]) -> T:
        """Carry out a coroutine whose only waits are this driver's calls."""

    def open(
        self, store: Store, serde: SerializerProtocol | None
    ) -> AbstractAsyncContextManager[Saver]:
        """A saver of this api on a connection of its own."""

    async def call(self, target: Any, method: str, *args: Any, **options: Any) -> Any:
        """`target.method(...)`, or its async twin `target.amethod(...)`."""

    async def rows(self, target: Any, method: str, *args: Any, **options: Any) -> list[Any]:
        """All that an iterating method yields."""

    async def play(
        self, graph: Graph, saver: Saver, thread: ThreadScript, spec: WorkloadSpec, clock: TurnClock
    ) -> Outcome:
        """Play a thread's events."""


class SyncDriver:
    """The sync api."""

    def run(self, steps: Coroutine[Any, Any, T]) -> T:
        try:
            steps.send(None)
        except StopIteration as stop:
            value: T = stop.value
            return value
        steps.close()
        raise RuntimeError("a sync step waited for an event loop")

    @asynccontextmanager
    async def open(self, store: Store, serde: SerializerProtocol | None) -> AsyncIterator[Saver]:
        with store.saver(serde) as saver:
            yield saver

    async def call(self, target: Any, method: str, *args: Any, **options: Any) -> Any:
        return getattr(target, method)(*args, **options)

    async def rows(self, target: Any, method: str, *args: Any, **options: Any) -> list[Any]:
        return list(getattr(target, method)(*args, **options))

    async def play(
        self, graph: Graph, saver: Saver, thread: ThreadScript, spec: WorkloadSpec, clock: TurnClock
    ) -> Outcome:
        return play(graph, saver, thread, spec, clock)


class AsyncDriver:
    """The async api, in one event loop."""

    def run(self, steps: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(steps)

    @asynccontextmanager
    async def open(self, store: Store, serde: SerializerProtocol | None) -> AsyncIterator[Saver]:
        async with store.asaver(serde) as saver:
            yield saver

    async def call(self, target: Any, method: str, *args: Any, **options: Any) -> Any:
        return await getattr(target, f"a{method}")(*args, **options)

    async def rows(self, target: Any, method: str, *args: Any, **options: Any) -> list[Any]:
        return [row async for row in getattr(target, f"a{method}")(*args, **options)]

    async def play(
        self, graph: Graph, saver: Saver, thread: ThreadScript, spec: WorkloadSpec, clock: TurnClock
    ) -> Outcome:
        return await aplay(graph, saver, thread, spec, clock)


def driver_for(spec: WorkloadSpec) -> Driver:
    """The driver of the workload's api."""
    return AsyncDriver() if spec.run.api == "async" else SyncDriver()
