"""`savermark run`: workloads on backends, measured."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from savermark.cli.output import remark
from savermark.cli.run_options import RunOptions, backend_option, run_options

if TYPE_CHECKING:
    from savermark.errors import Interrupted
    from savermark.results import RunResult
    from savermark.runner import RunPlan, RunSummary

DEFAULT_BACKENDS = ("memory", "sqlite", "postgres")


@click.command(
    "run",
    epilog="Example: savermark run chat --backend sqlite --backend postgres --set turns=100",
)
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@click.option("--profile", metavar="NAME", help="A named set of workloads: quick, standard, ...")
@backend_option()
@run_options
def command(
    workloads: tuple[str, ...],
    profile: str | None,
    backends: tuple[str, ...],
    options: RunOptions,
) -> int:
    """Run WORKLOADs (names, patterns such as 'published-*', or TOML files) on each backend.

    Each case is measured in a fresh process on a fresh store. The result is a folder with raw
    samples, tables, plots and a page; killing the run loses at most the trial in flight.
    """

    plan = options.plan()
    options.check_resume(workloads or profile, backends)
    if options.resume is None or workloads or profile:
        plan = _planned(plan, workloads, profile, backends, options.overrides)
    return measured(plan, options)


def measured(
    plan: RunPlan,
    options: RunOptions,
    *,
    show: Callable[[RunResult, str], None] | None = None,
    judge: Callable[[RunResult], int | None] = lambda run: None,
) -> int:
    """Run the plan, or what is left of the result to resume, and report; the exit code.

    `show` prints the result in place of the summary table; `judge` may give another exit code.
    """
    from savermark.cli.progress import progress_for
    from savermark.results import load_run
    from savermark.runner import run_workloads

    quiet = options.quiet
    if options.resume is None:
        folder = _folder(options.out)
    else:
        plan, folder = _resumed(plan, options.resume)
    try:
        with progress_for(quiet=quiet) as progress:
            summary = run_workloads(plan, folder, progress)
        if not options.no_report:
            _report(summary, options.fmt, quiet=quiet, show=show)
    except KeyboardInterrupt:
        raise _interrupted(folder) from None
    remark(f"result: {summary.path.parent}", quiet=quiet)
    return judge(load_run(summary.path)) or summary.exit_code


def _interrupted(folder: Path) -> Interrupted:
    from savermark.errors import Interrupted
    from savermark.results import RUN_FILE

    if not (folder / RUN_FILE).is_file():
        return Interrupted("interrupted before the first trial: nothing is left behind")
    return Interrupted(
        f"interrupted; finished trials are kept, --resume {shlex.quote(str(folder))} goes on"
    )


def _planned(
    plan: RunPlan,
    workloads: tuple[str, ...],
    profile_name: str | None,
    backends: tuple[str, ...],
    overrides: tuple[str, ...],
) -> RunPlan:
    from savermark.profiles import get_profile, make_cases, profile_cases

    if bool(workloads) == bool(profile_name):
        raise click.UsageError("name workloads or a --profile, one of the two")
    if profile_name:
        profile = get_profile(profile_name)
        return replace(
            plan,
            cases=tuple(profile_cases(profile, backends, overrides)),
            profile=profile.name,
            quick=profile.quick,
            repetitions=plan.repetitions or profile.repetitions,
        )
    cases = [
        case
        for workload in expanded(workloads)
        for case in make_cases(workload, backends or DEFAULT_BACKENDS, overrides)
    ]
    return replace(plan, cases=tuple(cases))


def expanded(workloads: tuple[str, ...], family: str = "savers") -> list[str]:
    """Names with a pattern replaced by the shipped workloads that match it."""
    from fnmatch import fnmatchcase

    from savermark.errors import UsageError
    from savermark.spec import workload_names

    found: list[str] = []
    for given in workloads:
        if any(mark in given for mark in "*?["):
            matches = [name for name in workload_names(family) if fnmatchcase(name, given)]
            if not matches:
                raise UsageError(f"no workload matches {given!r}: see `savermark list workloads`")
            found += matches
        else:
            found.append(given)
    return list(dict.fromkeys(found))


def _resumed(plan: RunPlan, name: str) -> tuple[RunPlan, Path]:
    """What is left of a result; named cases must be the ones that it was started with."""
    from savermark.results import find_result, load_run
    from savermark.runner import check_cases, resumed_plan

    path = find_result(name)
    run = load_run(path)
    check_cases(plan, run)
    return resumed_plan(run, plan), path.parent


def _folder(out: Path | None) -> Path:
    from savermark.results import RESULTS, new_run_id

    return out or RESULTS / new_run_id()


def _report(
    summary: RunSummary,
    fmt: str,
    *,
    quiet: bool,
    show: Callable[[RunResult, str], None] | None,
) -> None:
    from savermark.cli.summary import print_published, print_summary
    from savermark.frame import load_runs
    from savermark.report import write_report

    report = write_report(summary.path.parent)
    (run,) = load_runs(summary.path)
    (show or print_summary)(run, fmt)
    if not quiet and show is None:
        print_published(run)
    remark(f"page:   {report.page}", quiet=quiet)
