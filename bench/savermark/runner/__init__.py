"""Runs cases, one fresh process each, and keeps what they yield."""

from savermark.runner.plan import CAP_BYTES, Planned, RunPlan, cell_key, check_plan, plan_trials
from savermark.runner.progress import Progress, RunSummary, Silent
from savermark.runner.resume import check_cases, check_resume, resumed_plan
from savermark.runner.run import run_workloads

__all__ = [
    "CAP_BYTES",
    "Planned",
    "Progress",
    "RunPlan",
    "RunSummary",
    "Silent",
    "cell_key",
    "check_cases",
    "check_plan",
    "check_resume",
    "plan_trials",
    "resumed_plan",
    "run_workloads",
]
