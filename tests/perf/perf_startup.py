"""A trial's own start-up: from the birth of its process to the first turn of the conversation."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from goals import Goal

from savermark.profiles import make_cases
from savermark.results import load_run
from savermark.runner import RunPlan, run_workloads

GOAL_S = 2.5
BACKENDS = ("memory", "sqlite", "postgres")
SMALL = ("conversation.threads=1", "conversation.turns=2", "measure.cold=false")


def measure() -> Iterator[Goal]:
    """One goal a backend: the median over five trials of the smallest chat there is."""
    with tempfile.TemporaryDirectory() as folder:
        cases = tuple(make_cases("chat", BACKENDS, (*SMALL, "state.messages.kind=delta")))
        summary = run_workloads(RunPlan(cases=cases, repetitions=5), Path(folder) / "run")
        trials = load_run(summary.path).trials
    for backend in BACKENDS:
        times = [
            trial.process.setup_ns / 1e9
            for trial in trials
            if trial.process and trial.case_id.endswith(f"@{backend}")
        ]
        yield Goal(f"trial start-up on {backend}", statistics.median(times), GOAL_S, "s")
