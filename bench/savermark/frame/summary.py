"""One row a case: what a table shows first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from savermark.frame.build import case_values, counted, series
from savermark.frame.columns import SUMMARY
from savermark.records import Phase, Status, TrialResult
from savermark.storage import BLOB_TABLES, SHARED, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from savermark.frame.build import SeriesKey
    from savermark.records import PhaseStorage
    from savermark.results import RunResult

# The worst first: a case whose repetitions ended differently is called by its worst one.
_SEVERITY = (Status.FAILED, Status.TIMEOUT, Status.SKIPPED, Status.UNSUPPORTED, Status.OK)

_TIMES: dict[str, SeriesKey] = {
    "turn_p50_ns": ("loaded", "turn", "run", ""),
    "get_state_warm_p50_ns": ("loaded", "get_state", "warm", "head"),
    "get_state_cold_p50_ns": ("loaded", "get_state", "cold", "head"),
    "history_10_p50_ns": ("loaded", "history_10", "warm", "head"),
    "walk_native_p50_ns": ("loaded", "walk_native", "warm", "head"),
    "capture_p50_ns": ("loaded", "capture", "run", ""),
    "append_p50_ns": ("loaded", "append", "run", ""),
    "get_warm_p50_ns": ("loaded", "get", "warm", "head"),
    "restore_warm_p50_ns": ("loaded", "restore", "warm", "head"),
    "restore_cold_p50_ns": ("loaded", "restore", "cold", "head"),
}


def summarize_runs(runs: Sequence[RunResult]) -> pd.DataFrame:
    """A row for each case of each run, cases that no trial tried included.

    Sizes are medians over the repetitions that ended well, times medians over their samples
    together. A case with a failed check has its status and no number.
    """
    rows = []
    for run in runs:
        trials: dict[str, list[TrialResult]] = {case_id: [] for case_id in run.cases}
        for trial in run.trials:
            trials.setdefault(trial.case_id, []).append(trial)
        rows += [
            {**case_values(run, case_id, None), **case_summary(found)}
            for case_id, found in trials.items()
        ]
    return pd.DataFrame(
        {
            name: pd.Series([row.get(name) for row in rows], dtype=dtype)
            for name, dtype in SUMMARY.items()
        }
    )


def case_summary(trials: Sequence[TrialResult]) -> dict[str, Any]:
    """The summary values of one case; names without a value are left out."""
    good = [trial for trial in trials if trial.status is Status.OK]
    checks_ok = state_checks(trials)
    found: dict[str, Any] = {
        "repetitions": len(good),
        "status": str(worst_status(trials)),
        "checks_ok": checks_ok,
    }
    if checks_ok is False:
        return found
    sizes: dict[str, list[float]] = {}
    for trial in good:
        for name, value in trial_sizes(trial).items():
            sizes.setdefault(name, []).append(value)
    found.update({name: float(np.median(values)) for name, values in sizes.items()})
    for name, key in _TIMES.items():
        times = case_times(good, key)
        if times.size:
            found[name] = float(np.median(times))
    return found


def worst_status(trials: Iterable[TrialResult]) -> Status:
    """The worst ending among the trials of a case; `skipped` when there is none."""
    seen = Counter(trial.status for trial in trials)
    return next((status for status in _SEVERITY if seen[status]), Status.SKIPPED)


def state_checks(trials: Iterable[TrialResult]) -> bool | None:
    """Whether every check of every trial held; None when nothing was checked."""
    checks = [check.ok for trial in trials for check in trial.checks]
    return all(checks) if checks else None


def case_times(trials: Iterable[TrialResult], key: SeriesKey) -> np.ndarray[Any, Any]:
    """The counted samples of one series over the trials together."""
    return np.concatenate(
        [np.empty(0), *(counted(series(trial).get(key, []))[1] for trial in trials)]
    )


def trial_sizes(trial: TrialResult) -> dict[str, float]:
    """Rows, bytes and memory of one trial, by their summary names."""
    found: dict[str, float] = {}
    for part in trial.phases:
        total = [row.bytes for row in part.footprint if row.component == "total"]
        if total:
            found[f"footprint_{part.phase}_bytes"] = sum(total)
        if part.phase is Phase.LOADED:
            found.update(_storage_sizes(part))
    if trial.process is not None:
        found["peak_rss_bytes"] = trial.process.peak_rss_bytes
    return found


def _storage_sizes(part: PhaseStorage) -> dict[str, float]:
    if not part.storage:
        return {}
    threads = len({row.thread_id for row in part.storage if row.thread_id != SHARED})
    logical = sum(row.logical_bytes for row in part.storage)
    found: dict[str, float] = {
        f"{table}_rows": sum(row.rows for row in part.storage if row.table == table)
        for table in TABLES
    }
    if any(row.table in BLOB_TABLES for row in part.storage):  # a sandbox store has neither
        del found["blobs_rows"], found["writes_rows"]
    found["rows_per_thread"] = sum(row.rows for row in part.storage) / threads
    found["logical_bytes"] = logical
    found["bytes_per_thread"] = logical / threads
    # A thread without a floor (storage.FloorRow) has no part in the amplification either.
    floors = {row.thread_id: row.bytes for row in part.floor}
    floor = sum(floors.values())
    if floor:
        every = SHARED in floors  # one floor for the whole store
        above = sum(r.logical_bytes for r in part.storage if every or r.thread_id in floors)
        found["floor_bytes"] = floor
        found["amplification"] = above / floor
    return {**found, **_blob_sizes(part)}


def _blob_sizes(part: PhaseStorage) -> dict[str, float]:
    """What a sandbox trial says of its blobs: their bytes, and how many copies each stands for."""
    captured = sum(row.bytes for row in part.footprint if row.component == "captured")
    if not captured:
        return {}
    blobs = sum(row.logical_bytes for row in part.storage if row.table in BLOB_TABLES)
    return {"blob_bytes": blobs, "dedup_ratio": captured / blobs}
