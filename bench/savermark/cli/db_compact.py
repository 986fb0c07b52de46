"""`savermark db compact`: give back the space that deleted rows left."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import click

from savermark.cli.db_options import (
    check_mode,
    database_argument,
    dry_run_option,
    unconfirmed,
    yes_option,
)
from savermark.cli.output import Shown, emit_frame, emit_json, format_option, quiet_option, remark
from savermark.errors import BackendError
from savermark.units import format_bytes

_SHOWN: Shown = {
    "component": ("part", str),
    "table": ("table", str),
    "bytes_before": ("before", format_bytes),
    "bytes_after": ("after", format_bytes),
}


@click.command("compact", epilog="Example: savermark db compact checkpoints.sqlite --yes")
@database_argument
@click.option(
    "--full",
    is_flag=True,
    help="Postgres: rewrite the tables, which locks them (SQLite always rewrites the file).",
)
@dry_run_option
@yes_option
@format_option
@quiet_option
def command(uri: str, full: bool, dry_run: bool, yes: bool, fmt: str, quiet: bool) -> None:
    """VACUUM, after saying what it locks and needs; the footprint before and after.

    Without --yes nothing is changed.
    """
    from savermark.database.change_document import compact_document
    from savermark.database.opening import open_database

    check_mode(dry_run, yes)
    with open_database(uri, write=yes) as database:
        facts, plan, before = database.facts, database.compaction(full=full), database.footprint()
        document = compact_document(facts, datetime.now(UTC), plan, before, None)
        if yes:
            for line in _plan(document):
                remark(line, quiet=quiet)
            free = plan.free_disk_bytes
            if free is not None and free < plan.needed_bytes:
                raise BackendError(
                    f"{format_bytes(free)} of disk space are free and up to "
                    f"{format_bytes(plan.needed_bytes)} are needed: free some first"
                )
            database.check_writable()
            began = time.perf_counter()
            remarks = database.compact(full=full)
            seconds = round(time.perf_counter() - began, 6)
            document = compact_document(
                facts, datetime.now(UTC), plan, before, database.footprint(), remarks, seconds
            )
    _emit(document, fmt)
    if not (yes or dry_run):
        raise unconfirmed()


def _plan(document: dict[str, Any]) -> list[str]:
    plan = document["plan"]
    return [
        f"{document['database']['address']}: {'; '.join(plan['statements'])}",
        f"locks: {plan['locks']}",
        f"needs: {plan['needs']}",
        f"gives back: {plan['gives']}",
    ]


def _emit(document: dict[str, Any], fmt: str) -> None:
    import pandas as pd

    if fmt == "json":
        emit_json(document)
        return
    if fmt != "csv":
        done = document["done"]
        for line in [f"done in {document['seconds']:.3g} s"] if done else _plan(document):
            click.echo(line)
        for line in document["remarks"]:
            click.echo(line)
        click.echo()
    frame = pd.DataFrame(document["footprint"], dtype=object)
    emit_frame(frame, fmt, show=_SHOWN)
