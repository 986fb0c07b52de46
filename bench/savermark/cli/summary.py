"""What several verbs print of a run: the summary table and the published figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savermark.cli.output import Formatter, emit_frame
from savermark.units import format_bytes, format_count, format_ns

if TYPE_CHECKING:
    from savermark.results import RunResult

# What a person at a terminal wants first; JSON and CSV carry every column.
SHOWN: dict[str, Formatter] = {
    "workload": str,
    "variant": str,
    "backend": str,
    "api": str,
    "status": str,
    "rows_per_thread": format_count,
    "bytes_per_thread": format_bytes,
    "amplification": lambda value: f"{value:.1f}×",
    "footprint_loaded_bytes": format_bytes,
    "turn_p50_ns": format_ns,
    "get_state_warm_p50_ns": format_ns,
    "history_10_p50_ns": format_ns,
}


def print_summary(run: RunResult, fmt: str) -> None:
    """One row a case, on stdout."""
    from savermark.frame import summarize

    emit_frame(summarize(run), fmt, show=SHOWN, title=f"{run.run_id} ({run.header['profile']})")


def print_published(run: RunResult) -> None:
    """Each published figure that the run has a number for, on stderr: landed or missed."""
    from savermark.frame import to_frame
    from savermark.published import check_published

    frames = (to_frame(run, kind) for kind in ("storage", "footprint", "latency"))
    for row in check_published(*frames).to_dict("records"):
        text: Formatter = format_bytes if row["unit"] == "bytes" else "{:.1f}×".format
        click.echo(
            f"published: {'landed' if row['ok'] else 'MISSED'}: {row['figure']} "
            f"on {row['backend']}: {text(row['measured'])} "
            f"against {text(row['published'])} ({row['gate']})",
            err=True,
        )
