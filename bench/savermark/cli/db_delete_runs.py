"""`savermark db delete-runs`: what runs stored, and nothing that others are rebuilt from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from savermark.cli.db_changes import Work, emit_changes, exit_code, summary
from savermark.cli.db_options import (
    check_mode,
    check_protected,
    database_argument,
    dry_run_option,
    graph_help,
    protect_option,
    top_option,
    unconfirmed,
    yes_option,
)
from savermark.cli.output import format_option, quiet_option
from savermark.errors import UsageError
from savermark.units import amount, format_count

if TYPE_CHECKING:
    from savermark.retention.runs_plan import Addressable


@click.command(
    "delete-runs",
    epilog="Example: savermark db delete-runs checkpoints.sqlite --run RUN_ID --dry-run",
)
@database_argument
@click.option(
    "--run",
    "runs",
    multiple=True,
    required=True,
    metavar="ID",
    help="A run id as the checkpoints' metadata names it (repeatable).",
)
@protect_option
@click.option(
    "--addressable",
    type=click.Choice(["every", "heads"]),
    default="every",
    show_default=True,
    help="What must still read back: every checkpoint of other runs, or the tips alone.",
)
@click.option("--graph", metavar="MODULE:NAME", help=f"{graph_help} Verification reads through it.")
@top_option
@dry_run_option
@yes_option
@format_option
@quiet_option
def command(
    uri: str,
    runs: tuple[str, ...],
    protect: tuple[str, ...],
    addressable: Addressable,
    graph: str | None,
    top: int,
    dry_run: bool,
    yes: bool,
    fmt: str,
    quiet: bool,
) -> int:
    """Delete what these runs stored in all threads, but nothing that other runs are rebuilt from.

    Without --yes nothing is changed. Exits 3 when a thread was refused (it is left untouched and
    named) or what stays does not read back as before.
    """
    from savermark.database.change_document import runs_document
    from savermark.database.fleet import Pace
    from savermark.database.opening import open_database
    from savermark.database.tally import Tally
    from savermark.database.tasks import RunsTask
    from savermark.retention.fold import load_graph

    check_mode(dry_run, yes)
    if not all(run.strip() for run in runs):
        raise UsageError("--run is empty: give the id of a run")
    loaded = load_graph(graph) if graph is not None else None
    now, tally = datetime.now(UTC), Tally(top)
    with open_database(uri, write=yes) as database:
        protected = frozenset(check_protected(database, protect, None))
        task = RunsTask(runs, protect=protected, addressable=addressable, dry_run=not yes)

        def report() -> None:
            document = runs_document(database.facts, now, tally, task, done=yes)
            emit_changes(document, told(document), fmt, quiet=quiet)

        work = Work(database, tally, Pace(), report, loaded, protected, quiet=quiet)
        if yes:
            work.do(lambda reader: task)
        else:
            work.foresee(task)
    if not (yes or dry_run):
        raise unconfirmed()
    return exit_code(tally)


def told(document: dict[str, Any]) -> list[str]:
    """What a person wants to know first."""
    from savermark.retention.runs import WHY_NONE

    counts, done = document["checkpoints"], document["done"]
    if not counts["matched"]:
        return [WHY_NONE]
    count = {name: format_count(each) for name, each in counts.items()}
    lines = summary(document, f"deleting {amount(len(document['runs']), 'run')}")
    lines.insert(
        1,
        f"{amount(counts['matched'], 'checkpoint')} matched, "
        f"{count['kept_for_others']} kept for checkpoints of other runs, "
        f"{count['deleted']} {'deleted' if done else 'would go'}",
    )
    if counts["cut_off"]:
        lines.append(f"{count['cut_off']} older checkpoints of other runs lose their history")
    return lines
