"""`savermark conformance`: every rule of a saver, tried on any saver."""

from __future__ import annotations

from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savermark.cli.output import Shown, emit_frame, format_option, quiet_option, remark
from savermark.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

ROWS: Shown = {
    "api": ("api", str),
    "group": ("group", str),
    "capability": ("capability", str),
    "check": ("rule", str),
    "status": ("status", str),
    "detail": ("what was seen", str),
}
TOTALS: Shown = {
    "group": ("group", str),
    "capability": ("capability", str),
    "sync": ("sync", str),
    "async": ("async", str),
}
BROKEN = 3  # exit code
# `savermark.conformance.GROUPS` and `APIS`, which take long to import; a test compares.
GROUPS = ("public", "delta", "interface", "cleanup")
APIS = ("sync", "async")


@click.command("conformance", epilog="Example: savermark conformance sqlite --group delta")
@click.argument("saver", metavar="BACKEND|MODULE:FACTORY")
@click.option(
    "--group", "groups", multiple=True, type=click.Choice(GROUPS), help="Only this group of rules."
)
@click.option("--api", "apis", multiple=True, type=click.Choice(APIS), help="Only this api.")
@click.option("--dsn", help="A server for the backends that need one.")
@click.option("--all", "every", is_flag=True, help="Show every rule, not only the broken ones.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file instead of stdout.",
)
@format_option
@quiet_option
def command(
    saver: str,
    groups: tuple[str, ...],
    apis: tuple[str, ...],
    dsn: str | None,
    every: bool,
    output: Path | None,
    fmt: str,
    quiet: bool,
) -> int:
    """Try the rules of LangGraph's savers on a backend, or on the saver that FACTORY returns.

    The public conformance suite, delta channels, the interface, and what cleanup must leave whole;
    each through the sync and the async methods. What a saver lacks is unsupported. The factory is
    called with those of folder, name, dsn and serde that it takes. Exits 3 when a rule is broken.
    """
    import pandas as pd

    from savermark.conformance import Status, run_conformance

    with _target(output) as file, redirect_stdout(file) if file else nullcontext():
        rows = run_conformance(saver, groups=groups or None, apis=apis or APIS, dsn=dsn)
        facts = [{name: str(getattr(row, name)) for name in ROWS} for row in rows]
        _emit(pd.DataFrame(facts), fmt, saver, every)
    counts = {status: sum(row.status is status for row in rows) for status in Status}
    remark(f"{saver}: {', '.join(f'{n} {s}' for s, n in counts.items() if n)}", quiet=quiet)
    return BROKEN if counts[Status.FAILED] or counts[Status.ERROR] else 0


def _target(output: Path | None) -> Any:
    """The file to write, opened before anything is tried."""
    if output is None:
        return nullcontext()
    try:
        return output.open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error


def _emit(frame: pd.DataFrame, fmt: str, title: str, every: bool) -> None:
    """All rows for machines; for people the totals, then the rules that are broken."""
    if fmt in ("json", "csv"):
        emit_frame(frame, fmt)
        return
    emit_frame(_totals(frame), fmt, show=TOTALS, title=title)
    shown = frame if every else frame[frame["status"].isin(["failed", "error"])]
    if len(shown):
        click.echo()
        emit_frame(shown, fmt, show=ROWS, title="Every rule" if every else "Broken rules")


def _totals(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a capability: how many rules hold in each api."""
    import pandas as pd

    found = []
    for (group, capability), part in frame.groupby(["group", "capability"], sort=False):
        told = {"group": group, "capability": capability}
        for api in APIS:
            told[api] = _told(list(part[part["api"] == api]["status"]))
        found.append(told)
    found.sort(key=lambda row: GROUPS.index(row["group"]))
    return pd.DataFrame(found)


def _told(statuses: list[str]) -> str:
    counts = {name: statuses.count(name) for name in dict.fromkeys(statuses)}
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "not tried"
