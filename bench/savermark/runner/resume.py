"""Going on with a result that a kill, a crash or a decision left unfinished."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from savermark.environment import changed_facts
from savermark.errors import ResultError, SavermarkError
from savermark.families import case_from_json
from savermark.runner.plan import RunPlan

if TYPE_CHECKING:
    from savermark.results import RunResult


def resumed_plan(run: RunResult, plan: RunPlan | None = None) -> RunPlan:
    """The plan that goes on with a result: its own cases, seed and profile.

    Of `plan`, only what does not change the measurement is taken over. Raises `ResultError` when
    the result's cases cannot be read.
    """
    try:
        cases = tuple(case_from_json(case) for case in run.header["cases"])
        specs = [
            replace(
                case.spec, measure=replace(case.spec.measure, repetitions=stored["repetitions"])
            )
            for case, stored in zip(cases, run.header["cases"], strict=True)
        ]
    except (KeyError, TypeError, SavermarkError) as error:
        raise ResultError(f"{run.path} cannot be resumed: {error}; start a new run") from error
    return replace(
        plan or RunPlan(cases=()),
        cases=tuple(replace(case, spec=spec) for case, spec in zip(cases, specs, strict=True)),
        profile=run.header["profile"],
        quick=run.quick,
        repetitions=None,
        seed=run.header["seed"],
        resume=True,
    )


def check_resume(plan: RunPlan, run: RunResult, environment: dict[str, Any]) -> None:
    """Raise `ResultError` when the plan would mix other measurements into the result."""
    check_cases(plan, run)
    changes = changed_facts(run.header["environment"], environment)
    if changes:
        raise ResultError(
            f"the environment changed since {run.path} was started ({changes[0]}): start a new run"
        )


def check_cases(plan: RunPlan, run: RunResult) -> None:
    """Raise `ResultError` for a case that the result was not started with, or with another spec."""
    stored = run.cases
    for case in plan.cases:
        known = stored.get(case.case_id)
        if known is None:
            raise ResultError(f"{run.path} has no case {case.case_id}: start a new run")
        if known["fingerprint"] != case.fingerprint:
            raise ResultError(
                f"case {case.case_id} changed since the result was started "
                f"({known['fingerprint']} -> {case.fingerprint}): start a new run"
            )
