"""The tables of policies, for a terminal, for Markdown and for the page: one definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from savermark.frame.retention import (
    ALL,
    effort_table,
    reads_table,
    space_table,
    verdicts,
)
from savermark.frame.run_history import history_table
from savermark.report.walk_grid import MISSING, Grid
from savermark.units import format_bytes, format_count, format_ns

if TYPE_CHECKING:
    from savermark.results import RunResult

Look = tuple[str, Callable[[Any], str]]
_B, _NS = format_bytes, format_ns
_CASE: dict[str, Look] = {
    "workload": ("workload", str),
    "setting": ("variant", str),
    "policy": ("policy", str),
    "backend": ("backend", str),
}
_HEAD_READS = ("get_state", "history_10", "walk_base", "walk_native", "walk_onepass")
_COLD_READS = ("get_state",)  # shown; the frame has all


def _n(value: Any) -> str:
    return format_count(round(float(value)))


def _share(freed: float) -> str:
    return f"{freed:.0%}" if freed >= 0 else f"grew {-freed:.0%}"


_SPACE: dict[str, Look] = {
    **_CASE,
    "table": ("table", str),
    "rows_loaded": ("rows before", _n),
    "rows_retained": ("after", _n),
    "logical_bytes_loaded": ("payload before", _B),
    "logical_bytes_retained": ("after", _B),
    "stored_bytes_loaded": ("stored before", _B),
    "stored_bytes_retained": ("after", _B),
    "freed": ("payload freed", _share),
}
_STORE: dict[str, Look] = {
    **_CASE,
    "footprint_bytes_loaded": ("before", _B),
    "footprint_bytes_retained": ("after", _B),
    "footprint_bytes_compacted": ("space given back", _B),
    "freed": ("freed", _share),
}
_EFFORT: dict[str, Look] = {
    **_CASE,
    "threads": ("threads", _n),
    "changed": ("changed", _n),
    "refused": ("refused", _n),
    "rows_deleted": ("rows deleted", _n),
    "rows_per_s": ("rows/s", _n),
    "verified": ("read back", _n),
    "plan_ns": ("plan", _NS),
    "apply_ns": ("apply", _NS),
    "verify_ns": ("verify", _NS),
}
_READS: dict[str, Look] = {
    **_CASE,
    "read": ("read at the head", str),
    "p50_ns_loaded": ("before", _NS),
    "p50_ns_retained": ("after", _NS),
    "p50_ns_compacted": ("space given back", _NS),
    "change": ("after / before", str),
}
_HISTORY: dict[str, Look] = {
    **_CASE,
    "policy": ("leaf", str),
    "reads": ("history reads", _n),
    "scans": ("of them scans", _n),
    "writes": ("leaves written", _n),
    "deletes": ("deleted", _n),
    "checkpoints": ("checkpoints at the end", _n),
    "fast_p50_ns": ("read with leaf", _NS),
    "scan_p50_ns": ("read by scan", _NS),
    "fast_rows": ("rows with leaf", _n),
    "scan_rows": ("rows by scan", _n),
    "idle_ns": ("idle time a run", _NS),
    "idle_statements": ("statements a run", _n),
    "admission_p50_ns": ("admission", _NS),
}


def retention_grids(run: RunResult) -> Iterator[Grid]:
    """Verdicts first, then space, effort and reads, and the run-history scenario; none is empty."""
    judged = verdicts(run)
    if judged:
        names = ("workload", "variant", "policy", "backend", "threads refused", "verdict")
        rows = tuple(
            (j.workload, j.setting, j.policy, j.backend, str(j.refused), j.verdict) for j in judged
        )
        yield _lean(Grid("Verification", names, rows, len(names)))
    space = space_table([run])
    yield from _grid("Rows and bytes by table", _by_table(space), _SPACE, 5)
    yield from _grid("Whole store on disk or in memory", _whole(space), _STORE, 4)
    yield from _grid("What it took", effort_table([run]), _EFFORT, 4)
    yield from _grid("Reads of the longest thread, median", _at_head(reads_table([run])), _READS, 5)
    yield from _grid("Run history and its cache leaf", history_table([run]), _HISTORY, 4)


def _by_table(space: pd.DataFrame) -> pd.DataFrame:
    """Tables that ever held a row, and what went of each."""
    rows = space[space["rows_loaded"] > 0]
    return rows.assign(freed=1 - rows["logical_bytes_retained"] / rows["logical_bytes_loaded"])


def _whole(space: pd.DataFrame) -> pd.DataFrame:
    rows = space[(space["table"] == ALL) & space["footprint_bytes_loaded"].notna()]
    last = rows["footprint_bytes_compacted"].fillna(rows["footprint_bytes_retained"])
    return rows.assign(freed=1 - last / rows["footprint_bytes_loaded"])


def _at_head(reads: pd.DataFrame) -> pd.DataFrame:
    """The reads of the head that were made before and after."""
    chosen = reads["op"].isin(_HEAD_READS) & (reads["temperature"] == "warm")
    chosen |= reads["op"].isin(_COLD_READS) & (reads["temperature"] == "cold")
    rows = reads[(reads["at"] == "head") & chosen]
    rows = rows[rows["p50_ns_loaded"].notna() & rows["p50_ns_retained"].notna()]
    what = [
        op.replace("_", " ", 1) + (" (cold)" if temperature == "cold" else "")
        for op, temperature in zip(rows["op"], rows["temperature"], strict=True)
    ]
    change = [
        f"{ratio:.2f}" if pd.isna(low) else f"{ratio:.2f} ({low:.2f} to {high:.2f})"
        for ratio, low, high in zip(
            rows["ratio"], rows["ratio_low"], rows["ratio_high"], strict=True
        )
    ]
    return rows.assign(read=what, change=change)


def _grid(title: str, frame: pd.DataFrame, show: dict[str, Look], words: int) -> Iterator[Grid]:
    """The frame as text, without columns that hold nothing."""
    if frame.empty:
        return
    kept = {name: look for name, look in show.items() if frame[name].notna().any()}
    rows = tuple(
        tuple(
            MISSING if pd.isna(value) else look(value)
            for (_, look), value in zip(kept.values(), line, strict=True)
        )
        for line in frame[list(kept)].itertuples(index=False, name=None)
    )
    yield _lean(Grid(title, tuple(name for name, _ in kept.values()), rows, words))


def _lean(grid: Grid) -> Grid:
    """Without the workload where there is one, and without the variant where none was swept."""
    workloads, settings = ({row[at] for row in grid.rows} for at in (0, 1))
    keep = [at for at, seen in enumerate((workloads, settings)) if len(seen) > 1]
    keep += range(2, len(grid.headings))
    rows = tuple(tuple(row[at] for at in keep) for row in grid.rows)
    headings = tuple(grid.headings[at] for at in keep)
    return Grid(grid.workload, headings, rows, grid.words - len(grid.headings) + len(keep))
