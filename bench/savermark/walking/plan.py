"""From what `savermark walk` was asked for to the cases that answer it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from savermark.errors import UsageError
from savermark.history.walks import walk
from savermark.spec import load_workload, workload_names
from savermark.trial.case import BaseCase, Case
from savermark.walking.case import WalkCase, make_walk_cases
from savermark.walking.ground import BASE

if TYPE_CHECKING:
    from collections.abc import Callable

    from savermark.spec import WalkSpec

BACKENDS = ("memory", "sqlite", "postgres")
DEPTHS, FREQUENCIES = "walk-depth", "walk-frequency"  # what is walked when nothing is named
QUICK = ("measure.reads=10", "reads.history=3")
QUICK_DEPTHS = (10, 30, 100, 300)
#: What a recommendation chooses from where the workload names one frequency only.
WALK_CHOICES = "channels.frequencies=[[5], [10], [50], [100], [500], [1_000_000]]"
SAVER_CHOICES = (
    "state.messages.kind=delta",
    "state.messages.snapshot_frequency=[5, 10, 50, 100, 500, 1_000_000]",
    "measure.reads=15",  # the median's interval decides
)


@dataclass(frozen=True, slots=True)
class Request:
    """The options of the verb; a workload is a name or a file, patterns already replaced."""

    workloads: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    depths: tuple[int, ...] = ()
    walks: tuple[str, ...] = ()
    quick: bool = False
    recommend: bool = False
    overrides: tuple[str, ...] = ()

    def cases(self) -> list[BaseCase]:
        """Every case, savers' workloads only for a recommendation. Raises `UsageError`."""
        names = self.workloads or ((FREQUENCIES,) if self.recommend else (DEPTHS,))
        found: list[BaseCase] = []
        for name in names:
            if self.recommend and name in workload_names():
                found += self._saver_cases(name)
            else:
                found += self._walk_cases(name)
        return found

    def _walk_cases(self, name: str) -> list[WalkCase]:
        backends = self.backends or BACKENDS
        added = [*self._walked(), *(QUICK if self.quick else ())]
        made = make_walk_cases(name, backends, (*added, *self._depths(), *self.overrides))
        if self.quick and not self.depths:
            made = _shallow(made, QUICK_DEPTHS[-1])
            made = made or make_walk_cases(
                name, backends, (*added, f"thread.depth={QUICK_DEPTHS[-1]}", *self.overrides)
            )
        if self.recommend and _one(made, lambda spec: spec.channels.frequencies):
            return make_walk_cases(
                name, backends, (*added, WALK_CHOICES, *self._depths(), *self.overrides)
            )
        return made

    def _saver_cases(self, name: str) -> list[Case]:
        if self.depths or self.walks:
            raise UsageError(
                f"{name} is a saver workload, read as an application reads: leave --depth and "
                "--walk out, or name a walk workload"
            )
        return [
            Case(variant.spec.name, variant.label, variant.spec, backend)
            for variant in load_workload(name, (*SAVER_CHOICES, *self.overrides))
            for backend in self.backends or BACKENDS
        ]

    def _depths(self) -> list[str]:
        """One depth is set, several are swept: a swept key is part of every case's name."""
        if len(self.depths) == 1:
            return [f"thread.depth={self.depths[0]}"]
        return [f"thread.depth={list(self.depths)}"] if self.depths else []

    def _walked(self) -> list[str]:
        """The walks that were named, and base, against which the others are checked."""
        if not self.walks:
            return []
        for name in self.walks:
            walk(name)
        return [f'reads.walks="{",".join(dict.fromkeys((BASE, *self.walks)))}"']


def _shallow(cases: list[WalkCase], most: int) -> list[WalkCase]:
    return [case for case in cases if case.spec.thread.depth <= most]


def _one(cases: list[WalkCase], key: Callable[[WalkSpec], object]) -> bool:
    return len({key(case.spec) for case in cases}) == 1
