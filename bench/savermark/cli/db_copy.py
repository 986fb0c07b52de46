"""`savermark db copy`: a thread under another id, whole or in part."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from savermark.cli.db_changes import emit_rows
from savermark.cli.db_options import (
    check_mode,
    check_protected,
    check_threads,
    database_argument,
    dry_run_option,
    graph_help,
    protect_option,
    serde_of,
    unconfirmed,
    yes_option,
)
from savermark.cli.output import emit_json, format_option, quiet_option, remark


@click.command(
    "copy", epilog="Example: savermark db copy checkpoints.sqlite --thread a --to b --last 3 --yes"
)
@database_argument
@click.option("--thread", "source", required=True, metavar="ID", help="The thread to copy.")
@click.option("--to", "target", required=True, metavar="ID", help="An unused id.")
@click.option("--latest", is_flag=True, help="Only the newest state, with what it is rebuilt from.")
@click.option("--last", type=int, metavar="N", help="Only the last N turns.")
@click.option(
    "--graph",
    metavar="MODULE:NAME",
    help=f"{graph_help} With --latest the copy stores the values and needs no ancestors.",
)
@protect_option
@dry_run_option
@yes_option
@format_option
@quiet_option
def command(
    uri: str,
    source: str,
    target: str,
    latest: bool,
    last: int | None,
    graph: str | None,
    protect: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    fmt: str,
    quiet: bool,
) -> None:
    """Copy a thread under an unused id, in one transaction; the source is never changed.

    Checkpoint ids, parents, namespaces, writes, values and metadata stay as they are. Without
    --yes nothing is changed.
    """
    from savermark.database.change_document import copy_document
    from savermark.database.opening import open_database
    from savermark.retention.copy import Selection, copy_rows
    from savermark.retention.fold import graph_fold, load_graph

    check_mode(dry_run, yes)
    selection = Selection(latest, last, graph is not None, protect)
    loaded = load_graph(graph) if graph is not None else None
    serde = serde_of(loaded)
    with open_database(uri, write=yes, serde=serde if loaded is not None else None) as database:
        only = check_threads(database, (source,))
        check_protected(database, protect, only)
        if yes:
            database.check_writable()
            with database.reader(serde) as reader:
                fold = graph_fold(loaded, reader) if loaded is not None else None
                copied = copy_rows(database.rows, source, target, selection, fold=fold)
        else:
            copied = copy_rows(database.rows, source, target, selection, dry_run=True)
        document = copy_document(database.facts, datetime.now(UTC), copied)
    _emit(document, str(copied), fmt)
    remark(_advice(document), quiet=quiet or not yes)
    if not (yes or dry_run):
        raise unconfirmed()


def _advice(document: dict[str, Any]) -> str:
    return f"thread {document['to']!r} is an ordinary thread from now on"


def _emit(document: dict[str, Any], line: str, fmt: str) -> None:
    if fmt == "json":
        emit_json(document)
        return
    if fmt != "csv":
        click.echo(line)
        if document["folded"]:
            click.echo(f"values stored on the copy: {', '.join(document['folded'])}")
        click.echo()
    emit_rows(document, "tables", fmt)
