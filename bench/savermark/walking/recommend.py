"""The snapshot frequency that costs least within a read budget, and the numbers behind it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from savermark.errors import UsageError
from savermark.units import format_bytes, format_ns

_BUDGET = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|µs|ms|s)\s*")
_UNITS = {"us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


def parse_budget(text: str) -> float:
    """`20ms`, `1.5 s` or `800us` as nanoseconds. Raises `UsageError`."""
    found = _BUDGET.fullmatch(text)
    if found is None or not float(found[1]):
        raise UsageError(f"read budget {text!r}: give a time with its unit, for example 20ms")
    return float(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True, slots=True)
class Choice:
    """One snapshot frequency on one backend through one walk, as it was measured.

    `read_ns` is the median of a whole read at the head, in its worst moment; `high_ns` the upper
    end of its interval, None where n is too small for one. `stored_bytes` is what the thread holds.
    """

    backend: str
    walk: str
    frequency: int | None  # None: no snapshot within the thread
    stored_bytes: float
    read_ns: float
    high_ns: float | None
    workload: str = ""  # told where a run offers the choice for several

    @property
    def name(self) -> str:
        """The frequency as people say it."""
        return "no snapshot" if self.frequency is None else f"every {self.frequency:,} updates"

    @property
    def sure_ns(self) -> float:
        """What the budget is held against: the upper end, so that noise does not decide."""
        return self.read_ns if self.high_ns is None else self.high_ns


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer for one backend and walk; `chosen` is None where nothing is fast enough."""

    backend: str
    walk: str
    budget_ns: float
    chosen: Choice | None
    choices: tuple[Choice, ...]  # from the least bytes to the most, never empty

    def __str__(self) -> str:
        """One line: the answer, what it costs, and what the cheaper one would take."""
        workload = self.choices[0].workload
        where = f"{workload + ', ' if workload else ''}{self.backend}, walk {self.walk}"
        budget = format_ns(self.budget_ns)
        if self.chosen is None:
            best = min(self.choices, key=lambda choice: choice.sure_ns)
            return (
                f"{where}: no frequency surely reads within {budget}; the fastest, {best.name}, "
                f"takes up to {format_ns(best.sure_ns)}"
            )
        chosen = self.chosen
        what = "no snapshot needed" if chosen.frequency is None else f"snapshot {chosen.name}"
        line = (
            f"{where}: {what}: {format_bytes(chosen.stored_bytes)} a thread, read in "
            f"{format_ns(chosen.read_ns)} (budget {budget})"
        )
        cheaper = [c for c in self.choices if c.stored_bytes < chosen.stored_bytes]
        if cheaper:
            next_one = cheaper[-1]
            line += (
                f"; {next_one.name} would take {format_ns(next_one.read_ns)} for "
                f"{format_bytes(next_one.stored_bytes)}"
            )
        return line


def recommend(choices: Sequence[Choice], budget_ns: float) -> list[Recommendation]:
    """For each workload, backend and walk: the least bytes that read within the budget.

    Of equal bytes the faster one. Raises `UsageError` where there is only one frequency: that is
    no choice.
    """
    groups: dict[tuple[str, str, str], list[Choice]] = {}
    for choice in choices:
        groups.setdefault((choice.workload, choice.backend, choice.walk), []).append(choice)
    if not groups or max(len({c.frequency for c in group}) for group in groups.values()) < 2:
        raise UsageError(
            "a recommendation needs several snapshot frequencies: sweep them, for example with "
            "--set 'channels.frequencies=[[10], [50], [200]]'"
        )
    found = []
    for (_, backend, walk), group in groups.items():
        ordered = sorted(group, key=lambda choice: (choice.stored_bytes, choice.read_ns))
        within = [choice for choice in ordered if choice.sure_ns <= budget_ns]
        chosen = within[0] if within else None
        found.append(Recommendation(backend, walk, budget_ns, chosen, tuple(ordered)))
    return found
