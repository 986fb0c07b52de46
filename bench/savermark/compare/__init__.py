"""Two results side by side: a row a case and metric, and what may be said about it.

Rows and bytes are compared exactly (bytes within a documented tolerance), times by the ratio of
their medians, its interval, a rank test and a threshold together. What must not be compared says
why instead of giving a number. docs/method.md has the reasons, docs/schema.md the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from savermark.checks import busy_load
from savermark.compare import gates
from savermark.compare.judge import TIME_THRESHOLD, Rules, judge
from savermark.compare.measures import measures
from savermark.compare.model import (
    COLUMNS,
    COMPARISON_VERSION,
    Comparison,
    Difference,
    Kind,
    Row,
    Verdict,
)
from savermark.compare.render import HEADINGS, TELLING, as_text, to_markdown, verdict_line
from savermark.errors import NotComparableError
from savermark.frame.build import case_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from savermark.records import TrialResult
    from savermark.results import RunResult

__all__ = [
    "COLUMNS",
    "COMPARISON_VERSION",
    "HEADINGS",
    "TELLING",
    "Comparison",
    "Difference",
    "Kind",
    "Row",
    "Verdict",
    "as_text",
    "compare_runs",
    "exit_code",
    "to_markdown",
    "verdict_line",
]

# When most times of several backends move one way by more than this, the machine may have.
DRIFT_RATIO = 1.1
DRIFT_SHARE = 0.8
DRIFT_MIN_ROWS = 8
DRIFT_MIN_BACKENDS = 2

_OK, _REGRESSION = 0, 3


def compare_runs(a: RunResult, b: RunResult, *, threshold: float = TIME_THRESHOLD) -> Comparison:
    """Result `b` against the baseline `a`; ratios are b/a, and lower is better.

    `threshold` is the least ratio of times that counts as a difference. Raises
    `NotComparableError` (exit code 4) when nothing may be compared: other schema, a quick
    baseline, no case in common or no common case with the same spec.
    """
    gates.refuse(a, b)
    case_ids = list(dict.fromkeys([*a.cases, *b.cases]))
    trials_a, trials_b = _by_case(a), _by_case(b)
    rows: list[Row] = []
    for case_id in case_ids:
        rows += _case_rows(
            case_id, a, b, trials_a.get(case_id, []), trials_b.get(case_id, []), threshold
        )
    broken = [
        case_id
        for case_id in case_ids
        if gates.broke(trials_a.get(case_id, []), trials_b.get(case_id, []))
    ]
    cases = {
        case_id: case_values(a if case_id in a.cases else b, case_id, None) for case_id in case_ids
    }
    return Comparison(
        name_a=gates.name(a),
        name_b=gates.name(b),
        rows=tuple(rows),
        differences=tuple(gates.differences(a, b)),
        notes=tuple(_notes(a, b, rows, cases)),
        broken=tuple(broken),
        cases=cases,
    )


def exit_code(comparison: Comparison) -> int:
    """0; 3 when a metric is worse or a case broke; 4 when nothing could be compared."""
    if comparison.verdict is Verdict.WORSE:
        return _REGRESSION
    if comparison.verdict is Verdict.NOT_COMPARABLE:
        return NotComparableError.exit_code
    return _OK


def _by_case(run: RunResult) -> dict[str, list[TrialResult]]:
    found: dict[str, list[TrialResult]] = {}
    for trial in run.trials:
        found.setdefault(trial.case_id, []).append(trial)
    return found


def _case_rows(
    case_id: str,
    a: RunResult,
    b: RunResult,
    trials_a: Sequence[TrialResult],
    trials_b: Sequence[TrialResult],
    threshold: float,
) -> Iterator[Row]:
    why = gates.case_gate(case_id, a, b, trials_a, trials_b)
    if why:
        yield Row(case_id, "all", None, Verdict.NOT_COMPARABLE, why)
        return
    why_no_times = gates.time_gate(a, b, trials_a, trials_b)
    left, right = measures(trials_a), measures(trials_b)
    counts = left.get("checkpoints rows")
    rules = Rules(
        checkpoints=float(np.median(counts.medians)) if counts else 0.0,
        threshold=threshold,
        busy=_was_busy(a, trials_a) or _was_busy(b, trials_b),
    )
    for metric in dict.fromkeys([*left, *right]):
        kind = (left.get(metric) or right[metric]).kind
        if why_no_times and kind in (Kind.TIME, Kind.MEMORY):
            continue
        if metric in left and metric in right:
            yield judge(case_id, left[metric], right[metric], rules)
        else:
            where = "A" if metric in left else "B"
            yield Row(case_id, metric, kind, Verdict.NOT_COMPARABLE, f"only measured in {where}")
    if why_no_times:
        yield Row(case_id, "times and memory", None, Verdict.NOT_COMPARABLE, why_no_times)


def _was_busy(run: RunResult, trials: Sequence[TrialResult]) -> bool:
    return any(busy_load(run, trial) is not None for trial in trials)


def _notes(
    a: RunResult, b: RunResult, rows: Sequence[Row], cases: dict[str, dict[str, object]]
) -> Iterator[str]:
    if b.quick:
        yield f"B ({gates.name(b)}) is a quick result: it may be looked at, never built on."
    for side, run in (("A", a), ("B", b)):
        if not run.complete:
            yield f"{side} ({gates.name(run)}) did not run to its end."
        if _was_busy(run, run.trials):
            yield f"{side} ({gates.name(run)}) was measured on a busy machine."
    timed = [row for row in rows if row.kind is Kind.TIME and row.ratio]
    ratios = np.array([row.ratio for row in timed], dtype=np.float64)
    backends = {cases[row.case_id]["backend"] for row in timed}
    if len(timed) < DRIFT_MIN_ROWS or len(backends) < DRIFT_MIN_BACKENDS:
        return
    middle = float(np.median(ratios))
    share = float(np.mean(ratios > 1 if middle > 1 else ratios < 1))
    if max(middle, 1 / middle) > DRIFT_RATIO and share >= DRIFT_SHARE:
        yield (
            f"{share:.0%} of the times moved the same way on {len(backends)} backends (median "
            f"ratio {middle:.2f}): the machine may have changed rather than the code. "
            "Run both again, close together."
        )
