"""`savermark retain`: workloads before and after a retention policy, with the proof."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from savermark.cli.run_options import RunOptions, backend_option, run_options
from savermark.cli.run_verb import DEFAULT_BACKENDS, expanded, measured

if TYPE_CHECKING:
    from savermark.results import RunResult
    from savermark.trial.policy_case import RetainCase

SCENARIOS = ("run-history",)


@click.command(
    "retain",
    epilog="Example: savermark retain branching --policy keep-turns=3,duration-leaves -b sqlite",
)
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="RULES",
    help="Rules with commas between them (savermark list policies), or module:function of your "
    "own, called as function(saver, thread_ids); repeatable.",
)
@click.option(
    "--protect-tips",
    is_flag=True,
    help="Protect where the workload leaves its branches, as ids that a user comes back to.",
)
@click.option(
    "--scenario",
    type=click.Choice(SCENARIOS),
    help="In place of workloads and policies: what deleting the run-history leaf costs.",
)
@backend_option()
@run_options
def command(
    workloads: tuple[str, ...],
    policies: tuple[str, ...],
    protect_tips: bool,
    scenario: str | None,
    backends: tuple[str, ...],
    options: RunOptions,
) -> int:
    """Run WORKLOADs, let each --policy prune them, and show rows, bytes and times before and after.

    Each policy on each backend has a fresh store. What every thread promised is read before and
    compared after: a policy that breaks a promise is shown with the threads and the reasons in
    place of numbers, and the exit code is 3. --format md prints a block fit for a pull request;
    the result's folder holds it as retention.md.
    """
    from savermark.cli.retain_tables import print_retention
    from savermark.frame.retention import broken

    plan = options.plan()
    named = workloads or scenario
    options.check_resume(named, backends or policies)
    if options.resume is None or named:
        cases = _cases(workloads, policies, scenario, backends, options.overrides, protect_tips)
        plan = replace(plan, cases=tuple(cases))

    def judge(run: RunResult) -> int | None:
        return 3 if broken(run) else None

    return measured(plan, options, show=print_retention, judge=judge)


def _cases(
    workloads: tuple[str, ...],
    policies: tuple[str, ...],
    scenario: str | None,
    backends: tuple[str, ...],
    overrides: tuple[str, ...],
    protect_tips: bool,
) -> list[RetainCase]:
    from savermark.trial.policy_case import make_retain_cases, make_scenario_cases
    from savermark.trial.run_history import WAYS

    chosen = backends or DEFAULT_BACKENDS
    if scenario is not None:
        if workloads or policies or protect_tips:
            raise click.UsageError(
                "--scenario has a workload and ways of its own: leave WORKLOAD, --policy and "
                "--protect-tips out"
            )
        return make_scenario_cases(scenario, tuple(WAYS), chosen, overrides)
    if not workloads or not policies:
        raise click.UsageError(
            "name a workload and a --policy (savermark list policies), or a --scenario"
        )
    return [
        case
        for workload in expanded(workloads)
        for case in make_retain_cases(
            workload, chosen, policies, overrides, protect_tips=protect_tips
        )
    ]
