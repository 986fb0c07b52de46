"""What the run-history scenario found: reads with and without the leaf, by what deletes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from savermark.frame.retention import CASE, good_cases, median, middle, place_of, tidy

if TYPE_CHECKING:
    from savermark.records import TrialResult
    from savermark.results import RunResult

HISTORY_COUNTS = ("runs", "reads", "fast", "scans", "writes", "deletes", "checkpoints")
HISTORY = (
    *CASE,
    *HISTORY_COUNTS,
    "duration_copies",
    "fast_p50_ns",
    "scan_p50_ns",
    "admission_p50_ns",
    "idle_ns",
    "fast_statements",
    "fast_rows",
    "scan_statements",
    "scan_rows",
    "idle_statements",
    "idle_rows",
)
_IDLE = ("history_fast", "history_scan", "leaf_write", "leaf_delete")


def history_table(runs: Sequence[RunResult]) -> pd.DataFrame:
    """The run-history scenario, one row a case (columns `HISTORY`).

    `idle_ns` is what the history reads after one run take, with what they write and a pass deletes:
    the median of each call, as often as it was made. Counts with `idle_` are of that round after
    the last run, the others of one read.
    """
    rows = []
    for run in runs:
        for case, trials in good_cases(run, scenario="run-history"):
            told = trials[0].notes["run_history"]
            counts = {
                (item.op, name): getattr(item.counts, name)
                for item in trials[0].costs
                for name in ("statements", "rows")
            }
            row: dict[str, Any] = {
                name: told[name] for name in (*HISTORY_COUNTS, "duration_copies")
            }
            for name, op in (("fast", "history_fast"), ("scan", "history_scan")):
                row[f"{name}_p50_ns"] = middle(trials, ("loaded", op, "warm", "head"))
                for what in ("statements", "rows"):
                    row[f"{name}_{what}"] = counts.get((op, what))
            for what in ("statements", "rows"):
                row[f"idle_{what}"] = counts.get(("idle_round", what))
            row["admission_p50_ns"] = middle(trials, ("loaded", "admission", "warm", "head"))
            spent = [_idle_ns(trial, told["runs"]) for trial in trials]
            rows.append({**place_of(case), **row, "idle_ns": median(spent)})
    return tidy(rows, HISTORY)


def _idle_ns(trial: TrialResult, runs: int) -> float:
    calls = [item.ns for item in trial.samples if item.op in _IDLE]
    return sum(len(ns) * float(np.median(ns)) for ns in calls) / runs
