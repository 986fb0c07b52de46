"""`savermark sandbox run`: sandbox workloads on pairs of stores, measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from savermark.cli.run_options import RunOptions, run_options
from savermark.cli.run_verb import expanded, measured

if TYPE_CHECKING:
    from savermark.runner import RunPlan

DEFAULT_BACKENDS = ("memory+memory", "sqlite+folder", "postgres+folder")


@click.command(
    "run",
    epilog="Example: savermark sandbox run sandbox-coding-agent -b sqlite+folder -b postgres+s3",
)
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@click.option(
    "-b",
    "--backend",
    "backends",
    multiple=True,
    metavar="STORE+BLOBS",
    help="memory, sqlite or postgres, '+', memory, folder or s3; repeatable. "
    "[default: memory+memory, sqlite+folder, postgres+folder]",
)
@click.option(
    "--s3",
    envvar="SAVERMARK_S3_URL",
    show_envvar=True,
    metavar="URL",
    help="A bucket, as https://endpoint/bucket, with its keys in AWS_* variables. "
    "[default: moto's server on this machine, if it is installed]",
)
@run_options
def command(
    workloads: tuple[str, ...],
    backends: tuple[str, ...],
    s3: str | None,
    options: RunOptions,
) -> int:
    """Run sandbox WORKLOADs (names, patterns such as 'sandbox-*', or TOML files) on each pair.

    Each case is measured in a fresh process on fresh stores: rows, bytes and the time of every
    method, of captures and of restores, before and after pruning and a sweep of the blobs. The
    result is one of `savermark run`: show, report, compare and --resume take it.
    """

    plan = options.plan(s3=s3)
    options.check_resume(workloads, backends)
    if options.resume is None or workloads:
        plan = _planned(plan, workloads, backends, options.overrides)
    return measured(plan, options)


def _planned(
    plan: RunPlan,
    workloads: tuple[str, ...],
    backends: tuple[str, ...],
    overrides: tuple[str, ...],
) -> RunPlan:
    from savermark.sandbox_trial.case import make_sandbox_cases
    from savermark.spec import workload_names

    if not workloads:
        names = ", ".join(workload_names("sandbox"))
        raise click.UsageError(f"name a sandbox workload: {names}, or a TOML file")
    cases = [
        case
        for workload in expanded(workloads, "sandbox")
        for case in make_sandbox_cases(workload, backends or DEFAULT_BACKENDS, overrides)
    ]
    return replace(plan, cases=tuple(cases))
