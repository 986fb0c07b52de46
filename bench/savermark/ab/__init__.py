"""Two builds of a saver against each other: two environments, trials in turn, one report."""

from savermark.ab.plan import SIDES, AbPlan, Step, backends_of, foreign, plan_steps
from savermark.ab.report import compare_ab
from savermark.ab.run import run_ab
from savermark.ab.store import AbResult, load_ab

__all__ = [
    "SIDES",
    "AbPlan",
    "AbResult",
    "Step",
    "backends_of",
    "compare_ab",
    "foreign",
    "load_ab",
    "plan_steps",
    "run_ab",
]
