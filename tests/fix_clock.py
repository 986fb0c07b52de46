"""A clock that only moves when told, and a saver whose calls take known times on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from langgraph.checkpoint.base import CheckpointTuple

DELAYS = {"put": 700, "put_writes": 300, "get_tuple": 200, "list": 50, "walk": 900, "delete": 400}


class ManualClock:
    """Nanoseconds that pass by `advance` alone."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def advance(self, ns: int) -> None:
        self.now += ns


class DelayedSaver(InMemorySaver):
    """A memory saver each of whose calls takes `DELAYS`; `list` takes it for every row."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def put(self, *args: Any) -> Any:
        self.clock.advance(DELAYS["put"])
        return super().put(*args)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.clock.advance(DELAYS["put_writes"])
        super().put_writes(config, writes, task_id, task_path)

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        self.clock.advance(DELAYS["get_tuple"])
        return super().get_tuple(config)

    def list(self, config: Any, **options: Any) -> Iterator[CheckpointTuple]:
        for row in super().list(config, **options):
            self.clock.advance(DELAYS["list"])
            yield row

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for row in self.list(config, **options):
            yield row

    def get_delta_channel_history(self, **options: Any) -> Any:
        self.clock.advance(DELAYS["walk"])
        return super().get_delta_channel_history(**options)

    def delete_thread(self, thread_id: str) -> None:
        self.clock.advance(DELAYS["delete"])
        super().delete_thread(thread_id)


@pytest.fixture
def manual_clock() -> ManualClock:
    return ManualClock()
