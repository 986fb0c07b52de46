"""`savermark db inspect`: what a database holds."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from savermark.cli.db_options import (
    check_threads,
    database_argument,
    grace_option,
    thread_option,
)
from savermark.cli.output import (
    Shown,
    emit_frame,
    emit_json,
    format_option,
    quiet_option,
    remark,
)
from savermark.units import amount, format_bytes, format_count

_N, _B = format_count, format_bytes
_SIZE: Shown = {
    "rows": ("rows", _N),
    "logical_bytes": ("logical", _B),
    "stored_bytes": ("stored", _B),
}
_LISTS = ", ".join
# Section -> its title and its columns.
_SHOWN: dict[str, tuple[str, Shown]] = {
    "tables": (
        "Rows and payload by table",
        {"table": ("table", str), **_SIZE, "estimated_dead_rows": ("dead rows (estimate)", _N)},
    ),
    "footprint": (
        "The whole store on disk",
        {"component": ("part", str), "table": ("table", str), "bytes": ("bytes", _B)},
    ),
    "threads": (
        "Largest threads",
        {
            "thread_id": ("thread", str),
            "namespaces": ("namespaces", _N),
            **_SIZE,
            "checkpoints_rows": ("checkpoints", _N),
            "writes_rows": ("writes", _N),
            "blobs_rows": ("blobs", _N),
        },
    ),
    "heads": (
        "Heads that a read must walk farthest from",
        {
            "thread_id": ("thread", str),
            "checkpoint_ns": ("namespace", str),
            "depth": ("depth", _N),
            "distance": ("steps to seed", _N),
            "seeded": ("seed found", lambda found: "yes" if found else "no"),
            "delta": ("delta channels", _LISTS),
            "tips": ("tips", _N),
        },
    ),
    "channels": (
        "Rows and payload by channel",
        {"table": ("table", str), "channel": ("channel", str), **_SIZE},
    ),
    "values": (
        "Values inside checkpoints by channel",
        {"channel": ("channel", str), "rows": ("rows", _N), "logical_bytes": ("logical", _B)},
    ),
    "ages": (
        "Checkpoints by age, threads by their newest",
        {
            "age": ("age", str),
            "checkpoints": ("checkpoints", _N),
            "stored_bytes": ("stored", _B),
            "idle_threads": ("idle threads", _N),
        },
    ),
    "days": (
        "Checkpoints by day (UTC)",
        {
            "day": ("day", str),
            "checkpoints": ("checkpoints", _N),
            "stored_bytes": ("stored", _B),
        },
    ),
    "depths": (
        "Heads by the number of their ancestors",
        {"up_to": ("up to", _N), "heads": ("heads", _N)},
    ),
    "orphans": (
        "Rows that nothing names",
        {
            "table": ("table", str),
            "rows": ("rows", _N),
            "logical_bytes": ("logical", _B),
            "young_rows": ("younger than the grace", _N),
            "undated_rows": ("age unknown", _N),
            "threads": ("threads", _N),
            "example_thread": ("example", str),
        },
    ),
}
_LAST_DAYS = 14  # of the days, on a terminal


@click.command("inspect", epilog="Example: savermark db inspect checkpoints.sqlite --top 10")
@database_argument
@thread_option
@click.option(
    "--top",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="How many threads and heads are listed; 0 lists all.",
)
@grace_option
@click.option(
    "--channels",
    is_flag=True,
    help="Also the values inside checkpoints, by channel: opens every checkpoint.",
)
@click.option(
    "--section",
    type=click.Choice(list(_SHOWN)),
    help="Print this list alone (CSV: threads, if none is named).",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write a page, plots and CSV files into this folder.",
)
@format_option
@quiet_option
def command(
    uri: str,
    threads: tuple[str, ...],
    top: int,
    grace: timedelta,
    channels: bool,
    section: str | None,
    output: Path | None,
    fmt: str,
    quiet: bool,
) -> None:
    """Look at a database without changing it; the connection itself is read-only.

    Logical bytes are payloads as serialized, stored bytes what the engine keeps of them, and the
    footprint is the whole store with its free space: three numbers that do not add up.
    """
    from savermark.database.document import inspection_document
    from savermark.database.inspect import inspect
    from savermark.database.opening import open_database

    with open_database(uri) as database:
        only = check_threads(database, threads)
        found = inspect(database, threads=only, top=top, grace=grace, channels=channels)
    document = inspection_document(found, threads=only)
    if output is not None:
        from savermark.report.database import write_inspection

        page = write_inspection(document, output)
        remark(f"wrote {page} with its plots and tables", quiet=quiet)
    if fmt == "json":
        emit_json(document if section is None else document[section])
    elif fmt == "csv" or section is not None:
        _emit(document, section or "threads", fmt)
    else:
        _tell(document, fmt)


def _tell(document: dict[str, Any], fmt: str) -> None:
    """A summary in sentences, and every list that is not empty."""
    for line in summary(document):
        click.echo(line)
    for section in _SHOWN:
        if document[section]:
            click.echo()
            _emit(document, section, fmt)


def _emit(document: dict[str, Any], section: str, fmt: str) -> None:
    import pandas as pd

    title, show = _SHOWN[section]
    rows = document[section]
    if section == "days" and fmt == "table" and len(rows) > _LAST_DAYS:
        rows, title = rows[-_LAST_DAYS:], f"{title}, the last {_LAST_DAYS} of {len(rows)}"
    if section == "channels" and fmt == "table":
        rows = rows[:20]
    frame = pd.DataFrame(rows, columns=list(rows[0]) if rows else list(show), dtype=object)
    if fmt == "md":
        click.echo(f"**{title}**\n")
    emit_frame(frame, fmt, show=show, title=title)


def summary(document: dict[str, Any]) -> list[str]:
    """What a person wants to know first."""
    at, totals = document["database"], document["totals"]
    free = totals["free_bytes"]
    lines = [
        f"{at['address']} ({at['engine']}, written by {at['saver']}"
        f"{'' if at['task_path'] else ' before it kept task paths'})",
        f"{amount(totals['threads'], 'thread')}, {amount(totals['rows'], 'row')}: "
        f"{_B(totals['logical_bytes'])} of payload, {_B(totals['stored_bytes'])} as stored; "
        f"{_B(totals['footprint_bytes'])} on disk, "
        f"{'free space unknown' if free is None else f'{_B(free)} of it free'}",
    ]
    for orphan in document["orphans"]:
        lines.append(
            f"{_N(orphan['rows'])} {orphan['table']} ({_B(orphan['logical_bytes'])}) that nothing "
            f"names, in {amount(orphan['threads'], 'thread')}"
        )
    if totals["dead_namespaces"]:
        lines.append(
            f"{_N(totals['dead_namespaces'])} namespaces of subgraph calls whose caller is gone: "
            f"{amount(totals['dead_checkpoints'], 'checkpoint')}, {_B(totals['dead_stored_bytes'])}"
        )
    return lines
