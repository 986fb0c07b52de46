"""The walk `onepass` against the floor of a walk and against each saver's own.

The floor fetches exactly the needed rows by key in one prepared statement, and builds each value
once (`savermark.walking.floor`). All three run in turn on one thread, so a busy machine slows them
alike; ratios are medians over pairs.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goals import Goal, interleaved_ratio
from langgraph.checkpoint.memory import InMemorySaver

from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.history.walks import walk
from savermark.spec import WalkSpec
from savermark.walking.build import build, put_rows
from savermark.walking.floor import floor_of
from savermark.walking.rows import PROBE, channels, checkpoint_id, thread_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver

NEVER = 10**9
FOREIGN_BLOBS = 100_000
WARM = 12  # Postgres settles on a plan after five, SQLite has its pages by then


def spec(depth: int, kind: str = "plain", forks: int = 0, **shown: Any) -> WalkSpec:
    """One channel, a write of about 300 bytes on each checkpoint, no snapshot unless asked for."""
    base = WalkSpec("perf")
    asked = {"kind": kind, "frequencies": (NEVER,), "item_bytes": 300} | shown
    return replace(
        base,
        channels=replace(base.channels, **asked),
        thread=replace(base.thread, depth=depth, forks=forks),
    )


def measure() -> Iterator[Goal]:
    """Memory, SQLite, Postgres."""
    yield from _memory()
    yield from _sqlite()
    yield from _postgres()
    yield from _foreign()


class Pair:
    """The walks on one thread of one saver."""

    def __init__(self, saver: BaseCheckpointSaver[Any], asked: WalkSpec) -> None:
        self.saver, self.names = saver, list(channels(asked))
        self.config: Any = {
            "configurable": {
                "thread_id": PROBE,
                "checkpoint_ns": "",
                "checkpoint_id": checkpoint_id(asked.thread.depth - 1),
            }
        }
        self._floor = floor_of(saver, asked)
        right = self.of("base" if asked.thread.depth < 200 else "native")()
        assert self.of("onepass")() == right
        for _ in range(WARM):
            for each in (self.floor, self.of("onepass"), self.of("native")):
                each()

    def floor(self) -> object:
        """The least that a walk could do."""
        return self._floor.values(self.saver)

    def of(self, name: str) -> Callable[[], object]:
        """A walk by its name."""
        named = walk(name)
        return lambda: named.history(self.saver, self.config, self.names)

    def over_floor(self, rounds: int) -> float:
        """How many times the floor `onepass` takes."""
        return interleaved_ratio(self.of("onepass"), self.floor, rounds)

    def speed(self, rounds: int) -> float:
        """How many times as fast as the saver's own walk it is."""
        return 1 / interleaved_ratio(self.of("onepass"), self.of("native"), rounds)


@contextmanager
def opened(name: str, asked: WalkSpec) -> Iterator[Pair]:
    """A store that holds the thread of `asked`."""
    backend = get_backend(name)
    with tempfile.TemporaryDirectory(prefix="savermark-perf-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        with backend.service(place) as dsn:
            store = backend.create(Location(place, "walks", dsn))
            build(store, asked)
            with store.saver() as saver:
                yield Pair(saver, asked)
            store.destroy()


def _memory() -> Iterator[Goal]:
    near = spec(3_000, frequencies=(10,), snapshots="last", snapshot_items=5)
    saver = InMemorySaver()
    put_rows(saver, PROBE, thread_rows(near))
    what = "memory: 3,000 checkpoints, snapshot 10 away, times native's speed"
    yield Goal(what, Pair(saver, near).speed(51), 2.0, "x", at_most=False)


def _steps(connection: Any, block: Callable[[], object]) -> int:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1)
    block()
    connection.set_progress_handler(None, 0)
    return steps


def _sqlite() -> Iterator[Goal]:
    for kind, floor, native in (("message", 1.3, 1.3), ("plain", 1.8, 2.0)):
        with opened("sqlite", spec(1_000, kind)) as pair:
            yield Goal(f"sqlite: {kind}, 1,000, times the floor", pair.over_floor(31), floor, "x")
            what = f"sqlite: {kind}, 1,000, times native's speed"
            yield Goal(what, pair.speed(31), native, "x", at_most=False)
            took = [_steps(pair.saver.conn, pair.of(name)) for name in ("onepass", "native")]  # type: ignore[attr-defined]
            yield Goal(f"sqlite: {kind}, of native's steps", took[0] / took[1], 0.5, "x")
    with opened("sqlite", spec(1_000, other_bytes=20_000)) as pair:
        yield Goal("sqlite: 20 KB beside, times the floor", pair.over_floor(15), 2.5, "x")
        what = "sqlite: 20 KB beside, times native's speed"
        yield Goal(what, pair.speed(15), 2.0, "x", at_most=False)


def _postgres() -> Iterator[Goal]:
    for depth, goal, rounds in ((10, 1.5, 301), (1_000, 1.1, 41), (5_000, 1.1, 9)):
        for kind, native in (("plain", 2.0), ("message", 1.5)):
            with opened("postgres", spec(depth, kind)) as pair:
                what = f"postgres: {kind}, {depth:,}, times the floor"
                yield Goal(what, pair.over_floor(rounds), goal, "x")
                if depth == 1_000:
                    what = f"postgres: {kind}, {depth:,}, times native's speed"
                    yield Goal(what, pair.speed(rounds), native, "x", at_most=False)
    for every in (1, 10):
        with opened("postgres", spec(1_000, forks=every)) as pair:
            what = f"postgres: 1,000, a fork at every {every}, times native's speed"
            yield Goal(what, pair.speed(31), 1.0, "x", at_most=False)


def _foreign() -> Iterator[Goal]:
    """A short walk where other threads have added blobs, beside the same where none have.

    Nobody analyzes the tables.
    """
    with opened("postgres", spec(10)) as alone, opened("postgres", spec(10)) as crowded:
        with crowded.saver._cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute(
                "INSERT INTO checkpoint_blobs SELECT 'other-' || n %% 100, '', 'log0', n::text, "
                "'msgpack', decode('90', 'hex') FROM generate_series(1, %s) AS n",
                (FOREIGN_BLOBS,),
            )
            cursor.execute("CHECKPOINT")  # else the server writes while it is asked
        # What was inserted still keeps the machine busy during the first tenth of a second.
        for _ in range(2):
            ratio = interleaved_ratio(crowded.of("onepass"), alone.of("onepass"), 301)
        what = f"postgres: a walk of 10 beside {FOREIGN_BLOBS:,} foreign blobs, times without"
        yield Goal(what, ratio, 1.25, "x")
