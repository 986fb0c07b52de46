"""`savermark walk`: what rebuilding delta channels costs, by walk, depth and snapshot frequency."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from savermark.cli.run_options import RunOptions, backend_option, run_options
from savermark.cli.run_verb import expanded, measured

if TYPE_CHECKING:
    from savermark.results import RunResult


@click.command(
    "walk",
    epilog="Example: savermark walk --depth 100 --depth 1000 --walk native -b sqlite",
)
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@backend_option()
@click.option(
    "--depth",
    "depths",
    type=int,
    multiple=True,
    help="Checkpoints of the thread; repeatable: a sweep. [default: the workload's]",
)
@click.option(
    "--walk",
    "--strategy",
    "walks",
    multiple=True,
    metavar="NAME",
    help="A walk to measure; repeatable. base is always there. [default: all registered]",
)
@click.option("--quick", is_flag=True, help="Depths up to 300, few samples; no baseline.")
@click.option(
    "--recommend",
    "recommends",
    is_flag=True,
    help="Say which snapshot frequency costs least within --read-budget; WORKLOAD may be one of "
    "`savermark run`, too. [default workload: walk-frequency]",
)
@click.option(
    "--read-budget", metavar="TIME", help="What a read of the head may take, such as 20ms."
)
@run_options
def command(
    workloads: tuple[str, ...],
    backends: tuple[str, ...],
    depths: tuple[int, ...],
    walks: tuple[str, ...],
    quick: bool,
    recommends: bool,
    read_budget: str | None,
    options: RunOptions,
) -> int:
    """Measure walks over the chains of WORKLOADs (names, patterns such as 'walk-*', TOML files).

    Each case is one thread on one backend in a fresh process. Every walk rebuilds the same
    channels in turn: latency, its ratio to the floor, and counts that do not depend on the
    machine; then whole reads of a graph through each walk. The result is one of `savermark run`:
    show, report, compare and --resume take it.
    """
    from savermark.cli.walk_tables import print_recommendation, print_walks
    from savermark.walking.plan import Request
    from savermark.walking.recommend import parse_budget

    if recommends != (read_budget is not None):
        raise click.UsageError("--recommend and --read-budget go together: give both, or neither")
    if recommends and options.no_report:
        raise click.UsageError("--recommend is a report: leave --no-report out")
    budget = parse_budget(read_budget) if read_budget is not None else None
    plan = options.plan(quick=quick, profile="quick" if quick else "custom")
    options.check_resume(workloads, backends or depths or walks or quick)
    if options.resume is None or workloads:
        named = tuple(expanded(workloads, "walks"))
        request = Request(named, backends, depths, walks, quick, recommends, options.overrides)
        plan = replace(plan, cases=tuple(request.cases()))

    def show(run: RunResult, fmt: str) -> None:
        if budget is None:
            print_walks(run, fmt)
        else:
            print_recommendation(run, budget, fmt)

    return measured(plan, options, show=show)
