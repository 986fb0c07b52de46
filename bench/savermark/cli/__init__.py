"""The command line: one file a verb; a verb parses and prints, and decides nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from savermark.cli.groups import VerbGroup
from savermark.errors import SavermarkError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Verb -> its one-line help; each is the `command` of `<verb>_verb`.
VERBS = {
    "run": "Run workloads on backends, measured, into a result with tables, plots and a page.",
    "show": "Print a result's summary table.",
    "report": "Write a result's report, page, plots and frames again.",
    "compare": "Compare two results, case by case, with a verdict.",
    "retain": "Measure a retention policy: before and after, with proof that nothing was lost.",
    "conformance": "Try every rule of a saver on a backend or a factory.",
    "walk": "Measure ways to rebuild delta channels: latency, exact counts, growth.",
    "baseline": "Save what a saver costs, and check that it costs no more.",
    "ab": "Compare two builds of a saver: two environments, trials in turn, one report.",
    "history": "Follow what the releases of a package cost, one line a version.",
    "db": "Inspect, diagnose and maintain databases that savers wrote.",
    "sandbox": "Measure and prove stores of sandbox checkpoints.",
    "list": "List workloads, backends, walks, policies, profiles or results.",
    "env": "Print what decides the numbers on this machine.",
}


@click.group(
    cls=VerbGroup,
    verbs=VERBS,
    module="{}_verb",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="savermark", message="%(prog)s %(version)s")
def cli() -> None:
    """Measure what agent checkpoints cost: rows, bytes and latency, per thread and backend.

    Data goes to stdout; progress and warnings to stderr. Exit codes: 0 ok, 1 failed, 2 usage,
    3 regression or broken contract, 4 not comparable.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; every expected failure is one line on stderr and an exit code."""
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Like `main`, but returns the exit code (for tests and callers)."""
    try:
        outcome: Any = cli.main(args=argv, prog_name="savermark", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        _complain(error.format_message())
        if error.ctx is not None:
            click.echo(f"try: {error.ctx.command_path} --help", err=True)
        return 2
    except click.ClickException as error:
        _complain(error.format_message())
        return error.exit_code
    except SavermarkError as error:
        _complain(str(error))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _complain("interrupted")
        return 130
    except BrokenPipeError:  # the reader of stdout left, as `| head` does
        sys.stderr.close()
        return 0
    return outcome if isinstance(outcome, int) else 0


def _complain(message: str) -> None:
    one_line = " ".join(message.split())
    click.echo(f"savermark: {one_line}", err=True)
