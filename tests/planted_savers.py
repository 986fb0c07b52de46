"""Savers with a planted regression each, and the same ones without it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fix_clock import ManualClock

PLANT = "SAVERMARK_TEST_PLANT"


class SqliteOneMore(SqliteSaver):
    """Asks for one row more in each walk."""

    def get_delta_channel_history(self, **options: Any) -> Any:
        with self.cursor(transaction=False) as cursor:
            cursor.execute("SELECT 1").fetchone()
        return super().get_delta_channel_history(**options)


class PostgresOneMore(PostgresSaver):
    """Asks for one row more in each walk."""

    def get_delta_channel_history(self, **options: Any) -> Any:
        with self._cursor() as cursor:
            cursor.execute("SELECT 1").fetchone()
        return super().get_delta_channel_history(**options)


class PostgresOneMoreBlob(PostgresSaver):
    """Stores one blob more than needed, once."""

    spent = False

    def _dump_blobs(self, thread_id: str, checkpoint_ns: str, *args: Any) -> Any:
        found = super()._dump_blobs(thread_id, checkpoint_ns, *args)
        if not self.spent:
            self.spent = True
            found = [*found, (thread_id, checkpoint_ns, "more", "1", "bytes", b"x")]
        return found


class MemoryOneMoreBlob(InMemorySaver):
    """Stores one blob more than needed for each thread."""

    def put(self, config: Any, *args: Any) -> Any:
        at = config["configurable"]
        self.blobs[(at["thread_id"], at["checkpoint_ns"], "more", "1")] = ("bytes", b"x")
        return super().put(config, *args)


class NoWalk(SqliteSaver):
    """Lost its own walk."""

    def get_delta_channel_history(self, **options: Any) -> Any:
        return super(SqliteSaver, self).get_delta_channel_history(**options)


class Timed(InMemorySaver):
    """Its walk takes `walk_ns` on a clock that is told, an ancestor of the base walk `step_ns`."""

    clock: ManualClock
    walk_ns: int
    step_ns = 1_000

    def get_tuple(self, config: Any) -> Any:
        self.clock.advance(self.step_ns)
        return super().get_tuple(config)

    def get_delta_channel_history(self, **options: Any) -> Any:
        self.clock.advance(self.walk_ns)
        return super().get_delta_channel_history(**options)


@contextmanager
def planted(folder: Path) -> Iterator[SqliteSaver]:
    """A saver for `--saver planted_savers:planted`, with what the environment plants in it."""
    kind = SqliteOneMore if os.environ.get(PLANT) else SqliteSaver
    with closing(sqlite3.connect(folder / "planted.db", check_same_thread=False)) as connection:
        saver = kind(connection)
        saver.setup()
        yield saver


class Slower(SqliteSaver):
    """Its walk takes some times the processor's time that it needs."""

    times = 1.0

    def get_delta_channel_history(self, **options: Any) -> Any:
        start = thread_time_ns()
        found = super().get_delta_channel_history(**options)
        until = start + (thread_time_ns() - start) * self.times
        while thread_time_ns() < until:
            pass
        return found


@contextmanager
def timed(folder: Path) -> Iterator[SqliteSaver]:
    """`--saver planted_savers:timed`: as slow as SAVERMARK_TEST_SLOWER says."""
    with closing(sqlite3.connect(folder / "timed.db", check_same_thread=False)) as connection:
        saver = Slower(connection)
        saver.times = float(os.environ.get("SAVERMARK_TEST_SLOWER", "1"))
        saver.setup()
        yield saver
