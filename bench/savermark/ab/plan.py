"""What is run of two sides, and in which order."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from savermark.backends.registry import backend_names, get_backend
from savermark.errors import BackendError, UsageError
from savermark.runner import Planned, plan_trials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.installs import Install
    from savermark.runner import RunPlan
    from savermark.trial import BaseCase

Side = Literal["a", "b"]
SIDES: tuple[Side, Side] = ("a", "b")


@dataclass(frozen=True)
class AbPlan:
    """Two environments, and what both run. A is what B is judged against."""

    a: Install
    b: Install
    run: RunPlan

    def install(self, side: Side) -> Install:
        """The environment of a side."""
        return self.a if side == "a" else self.b

    def python(self, side: Side) -> Path:
        """The interpreter of a side."""
        return self.install(side).python


@dataclass(frozen=True, slots=True)
class Step:
    """A trial of a side, or, without either, both sides' probes: they take turns."""

    case: BaseCase
    side: Side | None = None
    repetition: int | None = None


def plan_steps(plan: RunPlan) -> list[Step]:
    """Every pair of probes, then every trial. The sides of one trial stand next to each other.

    Which of them comes first is drawn anew for each: what the one leaves behind for the other
    (a warm disk, a hot processor) falls on both alike.
    """
    draw = random.Random(plan.seed)
    steps = [Step(case) for case in plan.cases]
    for planned in plan_trials(plan):
        steps += [Step(planned.case, side, planned.repetition) for side in _drawn(draw)]
    return steps


def _drawn(draw: random.Random) -> tuple[Side, ...]:
    return SIDES if draw.random() < 0.5 else SIDES[::-1]


def foreign(cases: Sequence[BaseCase]) -> set[str]:
    """The savers named `package.module:factory`: they may be in the sides' environments only."""
    return {case.backend for case in cases if ":" in case.backend}


def planned(step: Step) -> Planned:
    """The trial of a step, as the runner takes it; a probe counts as repetition 0."""
    return Planned(step.case, step.repetition or 0)


def backends_of(installs: Sequence[Install]) -> tuple[str, ...]:
    """The backends whose saver comes with one of these packages.

    Raises `UsageError` where none does: then the user has to name it.
    """
    packages = {install.distribution for install in installs} - {""}
    found = tuple(name for name in backend_names() if _package(name) in packages)
    if not found:
        named = ", ".join(sorted(packages)) or "what is installed"
        raise UsageError(
            f"no backend is known to run on {named}: name one with --backend "
            "(a name, or any saver as package.module:factory)"
        )
    return found


def _package(name: str) -> str:
    try:
        return get_backend(name).distribution
    except BackendError:  # somebody's backend whose package is broken: not the one that is meant
        return ""
