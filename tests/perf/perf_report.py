"""`report` and `compare` on 10,000 samples, in this process, imports included once before."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from goals import Goal, seconds

from fix_results import FakeRun, matrix, write_run
from savermark.compare import compare_runs, to_markdown
from savermark.frame import load_runs, to_frame
from savermark.report import write_report

TURNS = 18  # 18 cases of this length hold a little over 10,000 samples
GOAL_S = 5.0


def measure() -> Iterator[Goal]:
    """Both verbs' work from raw files to written output, each against its goal."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [_write(Path(folder) / name, name, seed) for seed, name in enumerate("ab")]
        count = len(to_frame(load_runs(runs[0]), "samples"))
        report = seconds(lambda: write_report(runs[0]))
        yield Goal(f"report on {count:,} samples", report, GOAL_S, "s")
        compare = seconds(lambda: to_markdown(compare_runs(*load_runs(*runs))))
        yield Goal(f"compare of two results of {count:,} samples", compare, GOAL_S, "s")


def _write(folder: Path, name: str, seed: int) -> Path:
    """A run of the quick profile's size in cases, with at least 10,000 samples."""
    return write_run(folder, FakeRun(matrix(turns=TURNS), run_id=name, repetitions=1, seed=seed))
