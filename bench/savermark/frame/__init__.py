"""Results as tidy pandas frames: the documented way to read a run (docs/schema.md).

run = savermark.load_runs("results/local/<run>")
storage = savermark.to_frame(run, "storage")
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.errors import UsageError, unknown
from savermark.frame.build import BUILDERS, build
from savermark.frame.columns import CASE, FRAME_VERSION, OWN, SUMMARY, columns
from savermark.frame.summary import summarize_runs
from savermark.results import RunResult, load_run

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CASE",
    "FRAMES",
    "FRAME_VERSION",
    "OWN",
    "SUMMARY",
    "columns",
    "load_runs",
    "summarize",
    "to_frame",
]

# Frames that a module further down makes out of these; found by name, as it imports this one.
_BUILT_ELSEWHERE = {"findings": "savermark.checks"}

FRAMES: tuple[str, ...] = (*BUILDERS, *_BUILT_ELSEWHERE, "summary")


def load_runs(*paths: str | Path) -> list[RunResult]:
    """Read results: run folders or their `run.jsonl`; raises `ResultError` where one cannot be."""
    return [load_run(Path(path)) for path in paths]


def to_frame(runs: RunResult | Iterable[RunResult], kind: str) -> pd.DataFrame:
    """One frame of the run or runs together; `kind` is one of `FRAMES`.

    Columns and types are those of `savermark.frame.columns`, for an empty run too. Raises
    `UsageError` for an unknown kind.
    """
    several = [runs] if isinstance(runs, RunResult) else list(runs)
    if kind in BUILDERS:
        return build(kind, several)
    if kind == "summary":
        return summarize_runs(several)
    if kind in _BUILT_ELSEWHERE:
        made: pd.DataFrame = import_module(_BUILT_ELSEWHERE[kind]).findings_frame(several)
        return made
    raise UsageError(unknown("frame", kind, FRAMES))


def summarize(runs: RunResult | Iterable[RunResult]) -> pd.DataFrame:
    """One row a case: status, checks, rows, bytes, times in ns and memory (docs/schema.md)."""
    return to_frame(runs, "summary")
