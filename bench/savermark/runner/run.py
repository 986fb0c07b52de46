"""Runs cases: a fresh process and a fresh store for each trial, one at a time, nothing lost."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from savermark.backends.base import Location
from savermark.environment import capture_environment
from savermark.errors import ResultError
from savermark.families import get_family
from savermark.records import Status, TrialResult
from savermark.results import (
    append,
    append_trial,
    check_new,
    create_run,
    finished_trials,
    load_run,
    locked,
    prepare_folder,
    trim,
)
from savermark.runner.plan import (
    Planned,
    RunPlan,
    check_plan,
    oversized,
    plan_trials,
    repetitions_of,
)
from savermark.runner.progress import Progress, RunSummary, Silent
from savermark.runner.resume import check_resume
from savermark.runner.scratch import scratch_folder, scratch_problem
from savermark.trial import location_to_json, redact, run_child


def run_workloads(plan: RunPlan, out: Path, progress: Progress | None = None) -> RunSummary:
    """Run the plan's trials and append each to `out/run.jsonl`.

    `out` is the run's own folder. Raises a `SavermarkError` before the first trial for whatever
    would make the run useless; a trial that fails, crashes or takes too long becomes a row.
    """
    check_plan(plan)
    prepare_folder(out)
    try:
        with locked(out), terminable():
            return _run(plan, out, progress or Silent())
    finally:
        with suppress(OSError):  # it holds something: only an empty folder is no result
            out.rmdir()


def _run(plan: RunPlan, out: Path, progress: Progress) -> RunSummary:
    environment = capture_environment()
    finished = _finished(plan, out, environment)
    todo = [p for p in plan_trials(plan) if (p.case.case_id, p.repetition) not in finished]
    skipped = oversized(plan, todo)
    todo = [planned for planned in todo if planned not in skipped]
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(plan.keep))
        servers = start_services(stack, todo, scratch, plan)
        path = _open_result(plan, out, environment)
        progress.started(len(todo), len(finished))
        for planned, cause in skipped.items():
            append_trial(path, _row(planned, Status.SKIPPED, cause))
        for done, planned in enumerate(todo):
            progress.trial_started(planned, done, len(todo))
            result = run_one(
                planned, plan, scratch, servers[planned.case.family][planned.case.backend]
            )
            append_trial(path, result)
            progress.trial_finished(result, done + 1, len(todo))
    return finish(path, len(finished), bool(todo or skipped))


def _finished(plan: RunPlan, out: Path, environment: dict[str, Any]) -> set[tuple[str, int]]:
    """What of the plan a resumed result holds already; raises where it must not be resumed."""
    if not plan.resume:
        check_new(out)
        return set()
    run = load_run(out)
    check_resume(plan, run, environment)
    retry = {Status.SKIPPED} if plan.allow_large else set()
    if plan.retry_failed:
        retry |= {Status.FAILED, Status.TIMEOUT}
    return finished_trials(run, retry)


def _open_result(plan: RunPlan, out: Path, environment: dict[str, Any]) -> Path:
    if not plan.resume:
        return create_run(out, header(plan, out, environment))
    path = load_run(out).path
    trim(path)
    return path


def header(plan: RunPlan, out: Path, environment: dict[str, Any]) -> dict[str, Any]:
    """The first line of a result."""
    return {
        "run_id": out.resolve().name,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "profile": plan.profile,
        "quick": plan.quick,
        "seed": plan.seed,
        "command": redact(plan.command),
        "environment": environment,
        "cases": [
            {**case.to_json(), "repetitions": repetitions_of(plan, case)} for case in plan.cases
        ],
    }


def start_services(
    stack: ExitStack, todo: Sequence[Planned], scratch: Path, plan: RunPlan
) -> dict[str, dict[str, str | None]]:
    """Start what the backends of each family need for the length of the run; their dsn."""
    backends: dict[str, set[str]] = {}
    for planned in todo:
        backends.setdefault(planned.case.family, set()).add(planned.case.backend)
    given = {"dsn": plan.dsn, "s3": plan.s3}
    return {
        family: stack.enter_context(get_family(family).services(sorted(names), scratch, given))
        for family, names in backends.items()
    }


def run_one(
    planned: Planned, plan: RunPlan, scratch: Path, dsn: str | None, python: Path | None = None
) -> TrialResult:
    """One trial in a process of its own, of our interpreter or of `python`.

    Whatever happens to it, there is a row.
    """
    case = planned.case
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    began_ns = time.monotonic_ns()
    try:
        folder = Path(tempfile.mkdtemp(prefix="trial-", dir=scratch))
    except OSError as error:
        raise ResultError(scratch_problem(scratch, error)) from error
    location = Location(folder, folder.name.removeprefix("trial-"), dsn)
    job = {
        "kind": "trial",
        "case": case.to_json(),
        "repetition": planned.repetition,
        "location": location_to_json(location),
        "began_ns": began_ns,
        "keep": plan.keep,
        "reader": get_family(case.family).reads_cold(case),
    }
    end = run_child(job, folder, plan.timeout_s or case.spec.measure.timeout_s, python=python)
    if end.result is not None:
        result = TrialResult.from_json(end.result)
    else:
        get_family(case.family).sweep(case, location)
        result = _row(planned, Status.TIMEOUT if end.timed_out else Status.FAILED, end.cause)
    if not result.duration_ns:  # it did not come so far as to tell
        taken = time.monotonic_ns() - began_ns
        result = replace(result, started_at=started_at, duration_ns=taken)
    if not plan.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _row(planned: Planned, status: Status, cause: str) -> TrialResult:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return TrialResult(planned.case.case_id, planned.repetition, status, cause, started_at=now)


def finish(path: Path, resumed: int, added: bool) -> RunSummary:
    """Write the end line, unless it is there and nothing came after it."""
    run = load_run(path)
    summary = RunSummary(path, resumed=resumed)
    for trial in run.trials:
        summary.counts[trial.status] += 1
    if added or not run.complete:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        counts = {str(status): count for status, count in summary.counts.items()}
        append(path, {"record": "end", "finished_at": now, **counts})
    return summary


@contextmanager
def terminable() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP interrupt like Ctrl-C, so that services are ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before: list[tuple[signal.Signals, Callable[..., Any] | int | None]] = []
    for name in (signal.SIGTERM, signal.SIGHUP):
        before.append((name, signal.signal(name, interrupt)))
    try:
        yield
    finally:
        for name, handler in before:
            signal.signal(name, handler)
