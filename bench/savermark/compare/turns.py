"""A verdict on two builds whose walks were timed in turn: the ratios of the pairs against 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats as scipy_stats

from savermark import stats
from savermark.compare.judge import ALPHA
from savermark.compare.model import Kind, Row, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.probe import Pairs

#: As for a baseline's ratios: two processes of the same code differ by some per cent.
TURNS_THRESHOLD = 1.15


def judge_turns(case_id: str, duels: Sequence[Pairs], threshold: float = TURNS_THRESHOLD) -> Row:
    """The row of B's walk against A's. Worse or better needs the signed-rank test, an interval
    that leaves 1 out and a ratio beyond the threshold, in every duel.
    """
    metric = f"time of walk {duels[0].tested}, in turn"
    sides = [np.array(pairs.ratios, np.float64) for pairs in duels]
    ratios = np.concatenate(sides)
    if min(side.size for side in sides) < stats.INTERVAL_MIN_N:
        detail = f"n too small: fewer than {stats.INTERVAL_MIN_N} pairs"
        return Row(case_id, metric, Kind.RATIO, Verdict.UNRESOLVED, detail)
    verdicts = {_verdict(side, threshold) for side in sides}
    verdict = verdicts.pop() if len(verdicts) == 1 else Verdict.UNRESOLVED
    middle = stats.median_interval(ratios)
    detail = {
        Verdict.UNRESOLVED: f"too much noise to say same within {threshold:g}",
        Verdict.SAME: f"within {threshold:g}",
    }.get(verdict, "")
    return Row(
        case_id, metric, Kind.RATIO, verdict, detail,
        a=1.0, b=middle.value, n_a=ratios.size, n_b=ratios.size,
        ratio=middle.value, low=middle.low, high=middle.high, p=_signed_rank(ratios),
    )  # fmt: skip


def _verdict(ratios: stats.Values, threshold: float) -> Verdict:
    middle = stats.median_interval(ratios)
    assert middle.low is not None and middle.high is not None
    moved = middle.low > 1 or middle.high < 1
    far = max(middle.value, 1 / middle.value) >= threshold
    if moved and far and _signed_rank(ratios) < ALPHA:
        return Verdict.WORSE if middle.value > 1 else Verdict.BETTER
    within = 1 / threshold <= middle.low and middle.high <= threshold
    return Verdict.SAME if within else Verdict.UNRESOLVED


def _signed_rank(ratios: stats.Values) -> float:
    """Two-sided p of Wilcoxon's test that the pairs' ratios lie around 1."""
    if np.ptp(ratios) == 0:
        return float(ratios[0] == 1)
    return float(scipy_stats.wilcoxon(np.log(ratios)).pvalue)
