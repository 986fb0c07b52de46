"""`savermark ab`: two builds of a saver against each other."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from savermark.cli.output import format_option, quiet_option, recorded_command, remark
from savermark.cli.run_options import backend_option, cache_option, dsn_option, overrides_option

if TYPE_CHECKING:
    from savermark.installs import Install
    from savermark.trial import Case

REPETITIONS = 3  # with fewer, only a difference of half and more counts


@click.command(
    "ab",
    epilog="Example: savermark ab --a langgraph-checkpoint-sqlite==3.0.3 --b installed chat",
)
@click.argument("workloads", nargs=-1, metavar="WORKLOAD...", required=True)
@click.option("--a", "a", required=True, metavar="REQUIREMENT", help="What B is judged against.")
@click.option(
    "--b",
    "b",
    required=True,
    metavar="REQUIREMENT",
    help="A version (package==1.2.3), a path, a git reference, or `installed`.",
)
@backend_option("those that run on the packages compared")
@overrides_option
@click.option("--repetitions", type=int, default=REPETITIONS, show_default=True, help="A side.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the order of trials.")
@click.option("--threshold", type=float, help="The least ratio of times that counts.")
@click.option("--timeout", type=float, help="Seconds a trial may take.")
@dsn_option
@cache_option
@click.option("--fresh", is_flag=True, help="Build both environments anew.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The result's folder. [default: results/local/<run id>-ab]",
)
@format_option
@quiet_option
def command(
    workloads: tuple[str, ...],
    a: str,
    b: str,
    backends: tuple[str, ...],
    overrides: tuple[str, ...],
    repetitions: int,
    seed: int,
    threshold: float | None,
    timeout: float | None,
    dsn: str | None,
    cache: Path | None,
    fresh: bool,
    out: Path | None,
    fmt: str,
    quiet: bool,
) -> int:
    """Run WORKLOADs on two builds of a saver, trials in turn, and judge B against A.

    Each side has an environment of its own, which is kept for the next time; nothing is installed
    into yours. Exits 3 when B is worse, 4 when the two cannot be compared.
    """
    from savermark.ab import AbPlan, backends_of, compare_ab, foreign, run_ab
    from savermark.cli.compare_verb import check_threshold, print_comparison
    from savermark.cli.progress import progress_for
    from savermark.compare import exit_code
    from savermark.results import RESULTS, new_run_id
    from savermark.runner import RunPlan, check_plan

    check_threshold(threshold)
    plan = RunPlan(
        cases=(),
        repetitions=repetitions,
        seed=seed,
        timeout_s=timeout,
        dsn=dsn,
        command=recorded_command(sys.argv[1:]),
    )
    if backends:  # wrong names are told before anything is built
        named = _cases(workloads, backends, overrides)
        check_plan(replace(plan, cases=named), foreign(named))
    left, right = _built(a, cache, fresh, quiet), _built(b, cache, fresh, quiet)
    cases = _cases(workloads, backends or backends_of([left, right]), overrides)
    folder = out or RESULTS / f"{new_run_id()}-ab"
    with progress_for(quiet=quiet) as progress:
        result = run_ab(AbPlan(left, right, replace(plan, cases=cases)), folder, progress)
    comparison = compare_ab(result, **({} if threshold is None else {"threshold": threshold}))
    print_comparison(comparison, fmt)
    remark(f"result: {folder}", quiet=quiet)
    return exit_code(comparison)


def _built(requirement: str, cache: Path | None, fresh: bool, quiet: bool) -> Install:
    from savermark.installs import install

    remark(f"environment of {requirement} ...", quiet=quiet)
    return install(requirement, cache, fresh=fresh)


def _cases(
    workloads: tuple[str, ...], backends: tuple[str, ...], overrides: tuple[str, ...]
) -> tuple[Case, ...]:
    from savermark.cli.run_verb import expanded
    from savermark.profiles import make_cases

    names = expanded(workloads)
    return tuple(case for name in names for case in make_cases(name, backends, overrides))
