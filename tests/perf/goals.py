"""A measured figure beside its goal, and how a pair of functions is timed fairly."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of `make perf`; `at_most` says which side of the goal is good."""

    what: str
    measured: float
    goal: float
    unit: str
    at_most: bool = True

    @property
    def met(self) -> bool:
        return self.measured <= self.goal if self.at_most else self.measured >= self.goal


def seconds(block: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = perf_counter_ns()
    block()
    return (perf_counter_ns() - started) / 1e9


def interleaved_ratio(
    tested: Callable[[], object],
    reference: Callable[[], object],
    rounds: int,
    between: Callable[[], object] | None = None,
) -> float:
    """Median over rounds of tested/reference, the two run in turn so that drift hits both.

    The order within a pair alternates; the collector and `between` run between pairs, not inside
    them.
    """
    ratios = []
    gc.collect()
    gc.freeze()  # what is there already need not be looked at in every round
    gc.disable()
    try:
        for number in range(rounds):
            first_tested = number % 2 == 0
            a = seconds(tested if first_tested else reference)
            b = seconds(reference if first_tested else tested)
            ratios.append(a / b if first_tested else b / a)
            if between is not None:
                between()
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    return statistics.median(ratios)
