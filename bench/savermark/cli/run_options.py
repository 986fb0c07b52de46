"""The options that every verb which measures has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from savermark.cli.output import format_option, quiet_option

F = TypeVar("F", bound=Callable[..., object])

_OPTIONS = (
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a workload key; a list of values is a sweep. Repeatable.",
    ),
    click.option(
        "--dsn",
        envvar="SAVERMARK_POSTGRES_DSN",
        show_envvar=True,
        help="A Postgres server to use instead of the embedded one.",
    ),
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


def run_options(command: F) -> F:
    """Give a command the options of a run, in the order in which help shows them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
