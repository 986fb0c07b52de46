"""`savermark db doctor`: what is broken in a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from savermark.cli.db_options import (
    check_threads,
    database_argument,
    grace_option,
    thread_option,
)
from savermark.cli.output import Shown, emit_frame, emit_json, format_option, quiet_option, remark
from savermark.errors import ContractError

_SHOWN: Shown = {
    "severity": ("", str),
    "kind": ("finding", str),
    "thread_id": ("thread", repr),
    "checkpoint_ns": ("namespace", str),
    "checkpoint_id": ("checkpoint", str),
    "what": ("what", str),
    "breaks": ("what it breaks", str),
    "fix": ("what to do", str),
}


@click.command("doctor", epilog="Example: savermark db doctor postgresql://app@localhost/agents")
@database_argument
@thread_option
@grace_option
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Look at every thread row by row, not at suspects alone.",
)
@click.option(
    "--values",
    is_flag=True,
    help="Also compare values under equal versions: opens every checkpoint.",
)
@format_option
@quiet_option
def command(
    uri: str,
    threads: tuple[str, ...],
    grace: timedelta,
    everything: bool,
    values: bool,
    fmt: str,
    quiet: bool,
) -> int:
    """Name the unsafe forms in a database: what each breaks and what to do; changes nothing.

    Exits 3 when something is broken. Notices are left-overs and oddities that break nothing.
    """
    from savermark.database.doctor import diagnose, is_broken
    from savermark.database.document import doctor_document
    from savermark.database.opening import open_database

    now = datetime.now(UTC)
    with open_database(uri) as database:
        only = check_threads(database, threads)
        findings = list(
            diagnose(
                database, threads=only, grace=grace, everything=everything, values=values, now=now
            )
        )
        facts = database.facts
    document = doctor_document(facts, now, findings, threads=only)
    if fmt == "json":
        emit_json(document)
    elif findings or fmt == "csv":
        _emit(document["findings"], fmt)
    broken, notices = document["broken"], document["notices"]
    remark(f"{facts.address}: {broken} broken, {notices} notices", quiet=quiet)
    return ContractError.exit_code if is_broken(findings) else 0


def _emit(findings: list[dict[str, Any]], fmt: str) -> None:
    import pandas as pd

    columns = list(findings[0]) if findings else [*_SHOWN, "count"]
    emit_frame(pd.DataFrame(findings, columns=columns, dtype=object), fmt, show=_SHOWN)
