"""A gate for one saver: what it cost when the baseline was saved, and what it costs now."""

from savermark.baseline.check import check_baseline, gate_code
from savermark.baseline.file import (
    BASELINE_FILE,
    BASELINE_VERSION,
    Baseline,
    Entry,
    load_baseline,
    save_baseline,
)
from savermark.baseline.judge import RATIO_THRESHOLD, RUNTIME, judge_entry
from savermark.baseline.measure import Measured, measure

__all__ = [
    "BASELINE_FILE",
    "BASELINE_VERSION",
    "RATIO_THRESHOLD",
    "RUNTIME",
    "Baseline",
    "Entry",
    "Measured",
    "check_baseline",
    "gate_code",
    "judge_entry",
    "load_baseline",
    "measure",
    "save_baseline",
]
