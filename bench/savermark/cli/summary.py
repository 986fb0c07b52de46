"""What several verbs print of a run: the summary table and the published figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savermark.cli.output import Formatter, Shown, emit_frame
from savermark.units import format_bytes, format_count, format_ns

if TYPE_CHECKING:
    from savermark.results import RunResult

# What a person at a terminal wants first; JSON and CSV carry every column.
SHOWN: Shown = {
    "workload": ("workload", str),
    "variant": ("variant", str),
    "backend": ("backend", str),
    "status": ("status", str),
    "rows_per_thread": ("rows a thread", format_count),
    "bytes_per_thread": ("bytes a thread", format_bytes),
    "amplification": ("× floor", "{:.1f}".format),
    "footprint_loaded_bytes": ("whole store", format_bytes),
    "footprint_compacted_bytes": ("after retention", format_bytes),
    "turn_p50_ns": ("turn p50", format_ns),
    "get_state_warm_p50_ns": ("get_state p50", format_ns),
    "history_10_p50_ns": ("history(10) p50", format_ns),
    "dedup_ratio": ("dedup", "{:.1f}×".format),
    "capture_p50_ns": ("capture p50", format_ns),
    "append_p50_ns": ("append p50", format_ns),
    "get_warm_p50_ns": ("get p50", format_ns),
    "restore_warm_p50_ns": ("restore p50", format_ns),
}


def print_summary(run: RunResult, fmt: str) -> None:
    """One row a case, on stdout."""
    from savermark.frame import summarize

    frame = summarize(run)
    # What no case of this run has, another family of workloads does.
    show = {name: look for name, look in SHOWN.items() if frame[name].notna().any()}
    emit_frame(frame, fmt, show=show or SHOWN, title=f"{run.run_id} ({run.header['profile']})")


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
