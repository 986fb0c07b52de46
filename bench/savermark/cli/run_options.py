"""The options that every verb which measures has."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from savermark.cli.output import format_option, quiet_option, recorded_command

if TYPE_CHECKING:
    from savermark.runner import RunPlan

F = TypeVar("F", bound=Callable[..., object])


def backend_option(default: str = "memory, sqlite, postgres") -> Callable[[F], F]:
    """`--backend` of a verb that measures savers, as `backends`."""
    return click.option(
        "-b",
        "--backend",
        "--saver",
        "backends",
        multiple=True,
        metavar="NAME",
        help=f"A backend, or any saver as package.module:factory; repeatable. [default: {default}]",
    )


overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a workload key; a list of values is a sweep. Repeatable.",
)
dsn_option = click.option(
    "--dsn",
    envvar="SAVERMARK_POSTGRES_DSN",
    show_envvar=True,
    help="A Postgres server to use instead of the embedded one.",
)
cache_option = click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where environments are kept. [default: the user's cache folder]",
)

_OPTIONS = (
    overrides_option,
    dsn_option,
    click.option("--repetitions", type=int, help="Trials of each case. [default: the workload's]"),
    click.option("--seed", type=int, default=1, show_default=True, help="Of the order of trials."),
    click.option(
        "--timeout", type=float, help="Seconds a trial may take. [default: the workload's]"
    ),
    click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        help="The result's folder. [default: results/local/<run id>]",
    ),
    click.option(
        "--resume", metavar="RESULT", help="Go on with a result: latest, a run id, a folder."
    ),
    click.option(
        "--retry-failed", is_flag=True, help="With --resume: failed trials once more, too."
    ),
    click.option("--allow-large", is_flag=True, help="Run cases beyond the safety cap, too."),
    click.option(
        "--keep", is_flag=True, help="Leave stores and scratch folders for a look at them."
    ),
    click.option("--no-report", is_flag=True, help="Only measure; `savermark report` can follow."),
    format_option,
    quiet_option,
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a person chose of the options that every run has."""

    overrides: tuple[str, ...]
    dsn: str | None
    repetitions: int | None
    seed: int
    timeout: float | None
    out: Path | None
    resume: str | None
    retry_failed: bool
    allow_large: bool
    keep: bool
    no_report: bool
    fmt: str
    quiet: bool

    def check_resume(self, named: object, changed: object) -> None:
        """Raise `UsageError` when --resume comes with what it cannot go with.

        `named` are the workloads, `changed` is whatever else makes other cases.
        """
        if self.resume is None:
            return
        if self.out:
            raise click.UsageError("--resume writes into its result: leave --out out")
        if (changed or self.overrides) and not named:
            raise click.UsageError(
                "--resume takes the cases from its result: leave --backend and --set out, or name "
                "the workloads, too, to have them checked against it"
            )

    def plan(self, **more: Any) -> RunPlan:
        """A plan of these options, and what else a verb sets of it, still without its cases."""
        from savermark.runner import RunPlan

        return RunPlan(
            cases=(),
            repetitions=self.repetitions,
            seed=self.seed,
            timeout_s=self.timeout,
            allow_large=self.allow_large,
            retry_failed=self.retry_failed,
            dsn=self.dsn,
            keep=self.keep,
            command=recorded_command(sys.argv[1:]),
            **more,
        )


def run_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of a run, in the order in which help shows them.

    It gets them as one argument, `options: RunOptions`.
    """

    @functools.wraps(command)
    def gathered(**given: Any) -> int:
        shared = {field.name: given.pop(field.name) for field in fields(RunOptions)}
        return command(**given, options=RunOptions(**shared))

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered
