"""What a run measures, in which order, and what of it is too large."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from savermark.errors import UsageError
from savermark.families import get_family
from savermark.trial import BaseCase
from savermark.units import format_bytes

#: The largest case that is run unasked: beyond it, a trial takes minutes and gigabytes.
CAP_BYTES = 2**30
LONGEST_S = 86_400  # as `measure.timeout_s`: a trial is over in a day


@dataclass(frozen=True)
class RunPlan:
    """What a run measures, and how."""

    cases: tuple[BaseCase, ...]
    profile: str = "custom"
    quick: bool = False
    repetitions: int | None = None  # None: what each workload says
    seed: int = 1
    timeout_s: float | None = None  # of one trial; None: what each workload says
    resume: bool = False
    allow_large: bool = False
    retry_failed: bool = False  # a resumed run measures failed and timed-out trials once more
    dsn: str | None = None  # of Postgres; never stored
    s3: str | None = None  # URL of a bucket; never stored
    keep: bool = False  # leave stores and scratch folders for a look at them
    command: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """One trial that is to be run."""

    case: BaseCase
    repetition: int


def check_plan(plan: RunPlan, elsewhere: Collection[str] = ()) -> None:
    """Raise `UsageError` or `BackendError` for what is wrong with a plan itself.

    Backends that are `elsewhere`, in the environment of another interpreter, cannot be looked at.
    """
    if not plan.cases:
        raise UsageError("nothing to run: name a workload and a backend, or a --profile")
    names = [case.case_id for case in plan.cases]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"case {twice} is there twice: name each workload and backend once")
    if plan.repetitions is not None and plan.repetitions < 1:
        raise UsageError(f"repetitions is {plan.repetitions}: give 1 or more")
    if plan.timeout_s is not None and not 0 < plan.timeout_s <= LONGEST_S:
        raise UsageError(f"timeout is {plan.timeout_s:g} s: give more than 0, at most {LONGEST_S}")
    for family, backend in dict.fromkeys((case.family, case.backend) for case in plan.cases):
        if backend not in elsewhere:
            get_family(family).check_backend(backend)


def plan_trials(plan: RunPlan) -> list[Planned]:
    """Every trial in the order in which it is run.

    A repetition of all cases comes before the next one. Within it, workload variants are shuffled
    by the seed and the backends of one variant stand next to each other, also shuffled: what
    drifts on the machine hits all backends alike.
    """
    shuffle = random.Random(plan.seed).shuffle
    variants: dict[tuple[str, str], list[BaseCase]] = {}
    for case in plan.cases:
        variants.setdefault((case.workload, case.variant), []).append(case)
    most = max((repetitions_of(plan, case) for case in plan.cases), default=0)
    order = []
    for repetition in range(most):
        groups = list(variants.values())
        shuffle(groups)
        for group in groups:
            cases = list(group)
            shuffle(cases)
            order += [
                Planned(case, repetition)
                for case in cases
                if repetition < repetitions_of(plan, case)
            ]
    return order


def repetitions_of(plan: RunPlan, case: BaseCase) -> int:
    """How often the case is measured: the plan's word, else the workload's."""
    repetitions: int = plan.repetitions or case.spec.measure.repetitions
    return repetitions


def cell_key(case: BaseCase) -> str:
    """What the cases of one cell share: the workload at one size, whatever the channel kinds."""
    return get_family(case.family).cell_key(case)


def oversized(plan: RunPlan, todo: Sequence[Planned]) -> dict[Planned, str]:
    """Trials of cells beyond the cap. A cell goes as a whole: half a comparison misleads."""
    if plan.allow_large:
        return {}
    largest: dict[str, int] = {}
    for case in plan.cases:
        key = cell_key(case)
        largest[key] = max(largest.get(key, 0), get_family(case.family).estimate_bytes(case))
    return {
        planned: f"the largest case of this size holds about {format_bytes(size)}, more than "
        f"{format_bytes(CAP_BYTES)}: --allow-large runs it"
        for planned in todo
        if (size := largest[cell_key(planned.case)]) > CAP_BYTES
    }
