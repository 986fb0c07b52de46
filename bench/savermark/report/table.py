"""The table of cases: one definition for the page and for Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from savermark.plots.series import case_labels
from savermark.units import format_bytes, format_count, format_ns

MISSING = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of numbers: its frame name, heading, explanation and how a value reads."""

    name: str
    title: str
    hint: str
    show: Callable[[float], str]
    short: bool = False  # also in report.md


COLUMNS = (
    Column("rows_per_thread", "rows / thread", "rows in all tables", format_count),
    Column(
        "bytes_per_thread",
        "bytes / thread",
        "payload as serialized, mean",
        format_bytes,
        short=True,
    ),
    Column(
        "amplification",
        "× floor",
        "bytes stored over each distinct payload once",
        lambda value: f"{value:,.0f}" if value >= 99.5 else f"{value:.1f}",
        short=True,
    ),
    Column(
        "footprint_loaded_bytes",
        "store",
        "the whole store, after loading",
        format_bytes,
        short=True,
    ),
    Column(
        "footprint_compacted_bytes",
        "compacted",
        "the whole store, after retention and compaction",
        format_bytes,
    ),
    Column("turn_p50_ns", "turn", "whole turn, median", format_ns, short=True),
    Column(
        "get_state_warm_p50_ns", "get_state", "warm, at the head, median", format_ns, short=True
    ),
    Column("get_state_cold_p50_ns", "cold", "get_state in a new process, median", format_ns),
    Column("history_10_p50_ns", "history 10", "the last ten states, warm, median", format_ns),
    Column("walk_native_p50_ns", "walk", "delta history, the saver's own way, median", format_ns),
    Column(
        "dedup_ratio",
        "dedup",
        "bytes of all checkpoints' files and artifacts over the bytes of their blobs",
        lambda value: f"{value:,.1f}×",
        short=True,
    ),
    Column("capture_p50_ns", "capture", "a workspace, median", format_ns, short=True),
    Column("append_p50_ns", "append", "a checkpoint, median", format_ns),
    Column("get_warm_p50_ns", "get", "the head, warm, median", format_ns),
    Column("restore_warm_p50_ns", "restore", "the head, warm, median", format_ns, short=True),
    Column("restore_cold_p50_ns", "restore cold", "in a new process, median", format_ns),
    Column("peak_rss_bytes", "peak RAM", "of the worker process", format_bytes),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One number: how it reads and what it sorts by (None: missing, always last)."""

    text: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """One case of the table."""

    workload: str
    backend: str
    mode: str
    variant: str  # what else tells it apart from the other cases of its workload
    status: str  # ok, failed, ..., or `check failed`
    cells: tuple[Cell, ...]


def shown_columns(summary: pd.DataFrame) -> list[Column]:
    """The columns that hold any number in this run."""
    return [column for column in COLUMNS if summary[column.name].notna().any()]


def lines(summary: pd.DataFrame, columns: list[Column]) -> list[Line]:
    """The table's lines, in the order of the run, grouped by workload."""
    found = []
    for workload, rows in summary.groupby("workload", sort=False):
        labels = case_labels(rows)
        for label, (_, row) in zip(labels, rows.iterrows(), strict=True):
            mode = MISSING if pd.isna(row["mode"]) else str(row["mode"])
            head = str(row["backend"]) if mode == MISSING else f"{row['backend']} {mode}"
            variant = label.removeprefix(head).strip().strip("()")
            found.append(
                Line(
                    str(workload),
                    str(row["backend"]),
                    mode,
                    variant,
                    status_of(row),
                    tuple(_cell(row[column.name], column) for column in columns),
                )
            )
    return found


def status_of(row: Any) -> str:
    """The status of a case; a failed state check counts more than a good end."""
    failed = not pd.isna(row["checks_ok"]) and not row["checks_ok"]
    return "check failed" if failed else str(row["status"])


def _cell(value: Any, column: Column) -> Cell:
    if pd.isna(value):
        return Cell(MISSING, None)
    return Cell(column.show(float(value)), float(value))
