"""What was seen of a saver's calls: when each began and ended."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from contextlib import contextmanager
from itertools import chain
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING

from savermark.records import Phase, SampleSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Clock = Callable[[], int]
    Seen = dict[int, int]  # start -> end

#: Method of a saver -> the operation its samples are filed under; so is its async twin.
OPS = {
    "put": "put",
    "put_writes": "put_writes",
    "get_tuple": "get_tuple",
    "list": "list",
    "get_delta_channel_history": "walk",
    "delete_thread": "delete_thread",
    "delete_for_runs": "delete_for_runs",
    "copy_thread": "copy_thread",
    "prune": "prune",
}
TURN = "turn"


def merged_busy_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """The length of the union of (start, end) intervals: overlapping calls count once."""
    busy, reach = 0, None
    for start, end in sorted(intervals):
        if reach is None or start > reach:
            busy, reach = busy + end - start, end
        elif end > reach:
            busy, reach = busy + end - reach, end
    return busy


class Recorder:
    """Start and end of every call, by operation, in ns of `clock`.

    Calls may arrive from several threads. One costs one entry start -> end, which is atomic, and
    cheaper than a pair in a list; no two calls begin in the same nanosecond, since a thread cannot
    switch within one. Entries move to compact arrays between turns, off the clock, so that a long
    recording does not show in the process's memory.
    """

    def __init__(self, clock: Clock = perf_counter_ns) -> None:
        self.clock = clock
        self._fresh: dict[str, Seen] = {op: {} for op in (*OPS.values(), TURN)}
        self._spans: dict[str, array[int]] = {op: array("q") for op in self._fresh}
        self._settling = Lock()
        self._threads: list[int] = []  # when each thread's play began

    def seen(self, op: str) -> Seen:
        """Where the end of a call of `op` goes, under its start."""
        return self._fresh[op]

    def begin_thread(self) -> None:
        """Depths count from here on: the next thread starts out empty."""
        self._threads.append(self.clock())

    @contextmanager
    def turn(self, number: int) -> Iterator[None]:
        """Time the block as one turn (a `TurnClock`)."""
        start = self.clock()
        yield
        self._fresh[TURN][start] = self.clock()
        self._settle()

    def spans(self, op: str) -> list[tuple[int, int]]:
        """(start, end) of each call."""
        self._settle()
        flat = self._spans[op]
        return list(zip(flat[::2], flat[1::2], strict=True))

    def busy_ns(self) -> int:
        """Time within turns during which at least one saver call was running."""
        return merged_busy_ns(span for op in OPS.values() for span in self._in_turns(op))

    def wall_ns(self) -> int:
        """Time within turns."""
        return sum(end - start for start, end in self.spans(TURN))

    def depth(self) -> int:
        """Checkpoints that the thread now playing has."""
        return self._depth(self._puts(), self.clock())

    def samples(self) -> tuple[SampleSet, ...]:
        """Each operation seen within turns, by start, with the thread's depth at that moment.

        What was called between turns (looking up a tip, a duration-only checkpoint) counts in
        depths, but is no sample of a run.
        """
        puts = self._puts()
        found = []
        for op in self._spans:
            spans = self._in_turns(op)
            if spans:
                depth = tuple(self._depth(puts, start) for start, _ in spans)
                ns = tuple(end - start for start, end in spans)
                found.append(SampleSet(op, Phase.LOADED, "run", "", depth, ns))
        return tuple(found)

    def _in_turns(self, op: str) -> list[tuple[int, int]]:
        turns = sorted(self.spans(TURN))
        starts = [start for start, _ in turns]
        return [
            span
            for span in sorted(self.spans(op))
            if (turn := bisect_right(starts, span[0])) and span[0] < turns[turn - 1][1]
        ]

    def _puts(self) -> list[int]:
        return sorted(end for _, end in self.spans("put"))

    def _depth(self, puts: list[int], at: int) -> int:
        thread = bisect_right(self._threads, at)
        began = self._threads[thread - 1] if thread else 0
        return bisect_right(puts, at) - bisect_right(puts, began)

    def _settle(self) -> None:
        with self._settling:
            for op, fresh in self._fresh.items():
                batch = []
                while fresh:  # one by one: another thread may add to it meanwhile
                    batch.append(fresh.popitem())
                self._spans[op].extend(chain.from_iterable(sorted(batch)))
