"""Runs the steps of two sides, each in a fresh process of its own interpreter."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from savermark.ab.plan import SIDES, AbPlan, Step, foreign, plan_steps, planned
from savermark.ab.store import AbResult, append_pairs, append_probe, create_ab, load_ab
from savermark.compare import Verdict
from savermark.compare.turns import judge_turns
from savermark.errors import BackendError
from savermark.probe import Ask, Pairs, Probe
from savermark.records import Status, TrialResult
from savermark.results import RUN_FILE, append_trial, locked, prepare_folder
from savermark.runner import Progress, Silent, check_plan
from savermark.runner.duel import duel
from savermark.runner.run import finish, run_one, start_services, terminable
from savermark.runner.scratch import scratch_folder
from savermark.trial import run_child

START_SECONDS = 120.0
#: The walk as the saver does it, and the base class's beside it: a measure of the thread itself.
ASK = Ask(walks=("own", "base"))
ROUNDS = 60  # timed pairs
#: Pairs of processes that must all find B's walk slower before it is called so.
CONFIRMATIONS = 3


def run_ab(plan: AbPlan, out: Path, progress: Progress | None = None) -> AbResult:
    """Probe and run every case on both sides, in turn; what is done is on disk at once.

    Raises a `SavermarkError` before the first process for what would make the run useless.
    """
    elsewhere = foreign(plan.run.cases)
    check_plan(plan.run, elsewhere)
    prepare_folder(out)
    try:
        return _run(plan, out, progress or Silent(), elsewhere)
    finally:
        with suppress(OSError):  # it holds something: only an empty folder is no result
            out.rmdir()


def _run(plan: AbPlan, out: Path, told: Progress, elsewhere: set[str]) -> AbResult:
    with locked(out), terminable(), ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(plan.run.keep))
        create_ab(out, plan, {side: environment(plan.python(side), scratch) for side in SIDES})
        steps = plan_steps(plan.run)
        ours = [planned(step) for step in steps if step.case.backend not in elsewhere]
        servers = start_services(stack, ours, scratch, plan.run)
        told.started(len(steps), 0)
        for done, step in enumerate(steps):
            told.trial_started(planned(step), done, len(steps))
            known = servers.get(step.case.family, {})
            dsn = known.get(step.case.backend, plan.run.dsn)
            told.trial_finished(_take(plan, step, out, scratch, dsn), done + 1, len(steps))
        for side in SIDES:
            finish(out / side / RUN_FILE, 0, True)
    return load_ab(out)


def _take(plan: AbPlan, step: Step, out: Path, scratch: Path, dsn: str | None) -> TrialResult:
    if step.side is None:
        return _probe(plan, step, out, scratch, dsn)
    trial = run_one(planned(step), plan.run, scratch, dsn, plan.python(step.side))
    append_trial(out / step.side / RUN_FILE, trial)
    return trial


def _probe(plan: AbPlan, step: Step, out: Path, scratch: Path, dsn: str | None) -> TrialResult:
    """Probe both sides in turn; again, up to `CONFIRMATIONS`, while B's walk looks slower."""
    duels: list[Pairs] = []
    pythons = plan.python("a"), plan.python("b")
    while True:
        probes, pairs = duel(step.case, ASK, scratch, dsn, pythons, ROUNDS, plan.run.timeout_s)
        if not duels:
            for side, probe in zip(SIDES, probes, strict=True):
                append_probe(out, side, probe)
        if pairs is not None:
            append_pairs(out, step.case.case_id, pairs)
            duels.append(pairs)
        slower = pairs is not None and judge_turns("", [pairs]).verdict is Verdict.WORSE
        if not slower or len(duels) == CONFIRMATIONS:
            return as_trial(next((probe for probe in probes if probe.cause), probes[0]))


def as_trial(probe: Probe) -> TrialResult:
    """How a probe ended, in the words of a trial, for whoever is told."""
    status = Status.FAILED if probe.cause else Status.OK
    return TrialResult(probe.case_id, 0, status, probe.cause)


def environment(python: Path, scratch: Path) -> dict[str, Any]:
    """The facts that decide the numbers, as the interpreter of a side sees them."""
    try:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            end = run_child({"kind": "environment"}, Path(folder), START_SECONDS, python=python)
    except OSError as error:
        raise BackendError(f"the environment of {python} does not start: {error}") from error
    if end.result is None:
        raise BackendError(f"the environment of {python} does not start: {end.cause}")
    return end.result
