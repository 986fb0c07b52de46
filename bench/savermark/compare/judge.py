"""Verdicts on two values of one metric. Pure functions; every threshold with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from savermark import stats
from savermark.compare.model import Kind, Row, Verdict
from savermark.units import format_bytes, format_count

if TYPE_CHECKING:
    from savermark.compare.measures import Measure

# Version strings end in a random number of varying length, and every checkpoint repeats them:
# byte totals of identical runs differ. A large total by well under 0.05 %, a small one by chance
# of about 3.5 B * sqrt(checkpoints) on each side; 30 leaves six standard deviations.
BYTES_TOLERANCE = 0.0005
VERSION_BYTES = 30.0
# Random task ids are keys of tables and indexes, so pages split differently: measured 0.05 % on
# 8 MB. In a small store one page more or less in each relation is a large share, so below eight
# pages of 8 kB nothing can be said.
SPACE_TOLERANCE = 0.01
SPACE_FLOOR = 65_536.0
# Allocators and imports move the peak by a few per cent from process to process.
MEMORY_TOLERANCE = 0.10
# Repetitions of the same code differ by 3.5 %, but two results are made at different minutes, and
# a shared machine drifts by up to 40 % between minutes. Three repetitions show some of that drift
# and can be tested against it; with fewer a difference must be larger than all of it.
TIME_THRESHOLD = 1.25
TIME_THRESHOLD_FEW = 1.5
FEW_REPETITIONS = 3
# A comparison has hundreds of rows: at 0.05 one in twenty would fire on nothing.
ALPHA = 0.01
# The samples of a trial share its luck: that made two false alarms of 90 rows between two runs of
# the same code on a machine loaded five times over. The repetitions' own test is what stops them.
REPETITION_ALPHA = 0.005


@dataclass(frozen=True, slots=True)
class Rules:
    """What the verdicts of one case depend on beside the values.

    `checkpoints` is the number of checkpoint rows (0 when unknown), which the tolerance on bytes
    grows with; `threshold` the least ratio of times that counts as a difference; `busy` whether
    others used the machine during a trial of the case.
    """

    checkpoints: float = 0.0
    threshold: float = TIME_THRESHOLD
    busy: bool = False


def judge(case_id: str, a: Measure, b: Measure, rules: Rules) -> Row:
    """The row for one metric that both sides have."""
    if a.kind is Kind.TIME:
        return _judge_times(case_id, a, b, rules)
    return _judge_sizes(case_id, a, b, _tolerance(a, rules.checkpoints))


def _tolerance(a: Measure, checkpoints: float) -> float:
    value = float(np.median(a.medians))
    if a.kind is Kind.BYTES:
        return max(BYTES_TOLERANCE * value, VERSION_BYTES * math.sqrt(checkpoints))
    shares = {Kind.SPACE: SPACE_TOLERANCE, Kind.MEMORY: MEMORY_TOLERANCE}
    return shares.get(a.kind, 0.0) * value


def _judge_sizes(case_id: str, a: Measure, b: Measure, tolerance: float) -> Row:
    left, right = float(np.median(a.medians)), float(np.median(b.medians))
    verdict, detail = _size_verdict(a, b, right - left, tolerance)
    return Row(
        case_id=case_id,
        metric=a.metric,
        kind=a.kind,
        verdict=verdict,
        detail=detail,
        a=left,
        b=right,
        n_a=len(a.repetitions),
        n_b=len(b.repetitions),
        ratio=right / left if left else None,
    )


def _size_verdict(a: Measure, b: Measure, change: float, tolerance: float) -> tuple[Verdict, str]:
    show = format_count if a.kind in (Kind.ROWS, Kind.COUNT) else format_bytes
    spread = max(max(side.medians) - min(side.medians) for side in (a, b))
    if spread > tolerance and not stats.separated(a.medians, b.medians):
        # The seed should fix it and does not: neither sameness nor a difference can be shown.
        return Verdict.UNRESOLVED, f"repetitions of one result differ by {show(spread)}"
    if abs(change) <= tolerance:
        return Verdict.SAME, f"within the tolerance of {show(tolerance)}" if change else ""
    if a.kind is Kind.SPACE and abs(change) < SPACE_FLOOR:
        return Verdict.UNRESOLVED, "a difference of a few pages"
    return (Verdict.WORSE if change > 0 else Verdict.BETTER), ""


def _judge_times(case_id: str, a: Measure, b: Measure, rules: Rules) -> Row:
    left, right = a.pooled, b.pooled
    if min(left.min(), right.min()) <= 0:
        detail = "a time of zero: the clock is too coarse for this call"
        return Row(case_id, a.metric, a.kind, Verdict.UNRESOLVED, detail)
    ratio = stats.median_ratio(left, right)
    p = stats.rank_test(left, right)
    same = _within(ratio, rules.threshold) and all(_steady(x, rules.threshold) for x in (a, b))
    doubt = "" if same else _doubt(ratio, p, rules.threshold) or _chance(ratio, a, b, rules)
    moved = Verdict.WORSE if ratio.value > 1 else Verdict.BETTER
    return Row(
        case_id=case_id,
        metric=a.metric,
        kind=a.kind,
        verdict=Verdict.SAME if same else Verdict.UNRESOLVED if doubt else moved,
        detail=doubt,
        a=float(np.median(left)),
        b=float(np.median(right)),
        n_a=left.size,
        n_b=right.size,
        ratio=ratio.value,
        low=ratio.low,
        high=ratio.high,
        p=p,
    )


def _within(ratio: stats.Interval, threshold: float) -> bool:
    if ratio.low is None or ratio.high is None:
        return False
    return 1 / threshold <= ratio.low and ratio.high <= threshold


def _steady(side: Measure, threshold: float) -> bool:
    """Whether no repetition lies beyond the threshold from the middle of its own side."""
    middle = float(np.median(side.medians))
    return max(side.medians) <= middle * threshold and min(side.medians) >= middle / threshold


def _doubt(ratio: stats.Interval, p: float, threshold: float) -> str:
    """Why the samples carry no difference; empty when they do."""
    if ratio.low is None or ratio.high is None:
        return f"fewer than {stats.INTERVAL_MIN_N} samples on one side"
    if max(ratio.value, 1 / ratio.value) < threshold:
        return f"too much noise to say same within {threshold:g}"
    if ratio.low <= 1 <= ratio.high or p >= ALPHA:
        return f"the samples overlap too much (p {p:.2g})"
    return ""


def _chance(ratio: stats.Interval, a: Measure, b: Measure, rules: Rules) -> str:
    """Why a difference between the samples may be one between trials; empty when it is not."""
    if min(len(a.repetitions), len(b.repetitions)) >= FEW_REPETITIONS:
        if stats.repetition_test(a.medians, b.medians) >= REPETITION_ALPHA:
            return "repetitions of the same result differ nearly as much"
        return ""
    few = f"with fewer than {FEW_REPETITIONS} repetitions"
    needed = max(rules.threshold, TIME_THRESHOLD_FEW)
    if max(ratio.value, 1 / ratio.value) < needed:
        return f"{few} only {needed:g} and more counts"
    if not stats.separated(a.medians, b.medians):
        return "the repetitions of A and B overlap"
    return f"{few} nothing counts that was timed on a busy machine" if rules.busy else ""
