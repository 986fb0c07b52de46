"""Modest statistics over raw samples: medians with intervals, ranks, and what n does not carry.

Everything here is a pure function of its arguments and seeded, so a report made twice is the same
report. Samples of one trial are not independent of each other (they share a process and a minute),
so an interval says how well the trial's median is known, not how the next run will turn out;
`repetition_test` looks at that. docs/method.md explains what is concluded from what.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

if TYPE_CHECKING:
    from collections.abc import Sequence

Values = NDArray[np.float64]
Ranks = NDArray[np.intp]

CONFIDENCE = 0.95  # two-sided; the field's habit, and what the coverage tests check
RESAMPLES = 2_000  # the ends of a 95 % interval then rest on 50 resamples each
SEED = 20_260_101  # any fixed number: the same samples must give the same interval

# A percentile is shown only where a whole sample lies beyond it: 1 of 10, 1 of 20, 1 of 100.
PERCENTILE_MIN_N = {50: 1, 90: 10, 95: 20, 99: 100}
# Six is the least n whose full range holds the median with 95 % (1 - 2 * 0.5**n = 0.969).
INTERVAL_MIN_N = 6
GROWTH_MIN_N = 4  # two degrees of freedom: with one, the interval is 13 standard errors wide
TOO_FEW = "n too small"
WINDOW_SHARE = 0.1  # first, middle and last tenth of the way
WINDOW_MIN_N = 5  # a median of fewer says nothing; below 3 * 5 samples there are no windows


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the interval around it; `low` and `high` are None where n is too small."""

    value: float
    low: float | None
    high: float | None


def percentiles(values: Values, wanted: Sequence[int]) -> list[float | None]:
    """The wanted percentiles, each None where n does not carry it (`PERCENTILE_MIN_N`)."""
    found = np.percentile(values, wanted) if values.size else np.full(len(wanted), np.nan)
    return [
        float(value) if values.size >= PERCENTILE_MIN_N[q] else None
        for q, value in zip(wanted, found, strict=True)
    ]


def bootstrap_medians(values: Values, seed: int, resamples: int = RESAMPLES) -> Values:
    """The medians of `resamples` bootstrap resamples of `values`, without drawing the resamples.

    The k-th smallest of n uniform draws follows Beta(k, n - k + 1), so the ranks that a resample's
    middle has are drawn directly. That is the same distribution at a cost that does not grow with
    n: what lets a report over 10,000 samples take a fraction of a second.
    """
    ordered = np.sort(values)
    lower, upper = _middle_ranks(ordered.size, seed, resamples)
    return (ordered[lower] + ordered[upper]) / 2


@lru_cache(maxsize=256)  # many series of a run have the same n
def _middle_ranks(n: int, seed: int, resamples: int) -> tuple[Ranks, Ranks]:
    """The two middle ranks of each resample of n values; the same one twice for an odd n."""
    rng = np.random.default_rng(seed)
    half = (n + 1) // 2
    lower = rng.beta(half, n - half + 1, resamples)
    if n % 2:
        return (ranks := _ranks(lower, n)), ranks
    # Given the lower middle, the upper one is the least of `half` uniforms above it.
    upper = lower + (1 - lower) * rng.beta(1, half, resamples)
    return _ranks(lower, n), _ranks(upper, n)


def _ranks(uniform: Values, n: int) -> Ranks:
    return np.minimum((uniform * n).astype(np.intp), n - 1)


def median_interval(values: Values, seed: int = SEED) -> Interval:
    """The median with its bootstrap interval (percentile method); raises on an empty array."""
    if values.size < INTERVAL_MIN_N:
        return Interval(float(np.median(values)), None, None)
    return Interval(float(np.median(values)), *_ends(bootstrap_medians(values, seed)))


def median_ratio(a: Values, b: Values, seed: int = SEED) -> Interval:
    """median(b) / median(a) with its bootstrap interval; the values must be above zero."""
    value = float(np.median(b) / np.median(a))
    if min(a.size, b.size) < INTERVAL_MIN_N:
        return Interval(value, None, None)
    # Two seeds: with one, sides of equal n would be resampled alike and look closer than they are.
    return Interval(value, *_ends(bootstrap_medians(b, seed + 1) / bootstrap_medians(a, seed)))


def _ends(estimates: Values) -> tuple[float, float]:
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(estimates, [tail, 100 - tail])
    return float(low), float(high)


def rank_test(a: Values, b: Values) -> float:
    """Two-sided p of the Mann-Whitney test that neither side tends to be larger."""
    if a.min() == a.max() == b.min() == b.max():
        return 1.0  # all equal: the statistic has no variance to divide by
    return float(scipy_stats.mannwhitneyu(a, b, alternative="two-sided").pvalue)


def repetition_test(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p of Student's t-test on the logarithms of the repetitions' medians.

    Repetitions are what is independent here, so this is where the noise between trials is judged.
    One variance for both sides: they come from one harness on one machine, and three values are too
    few to learn two. Needs two values a side, all above zero.
    """
    left, right = np.log(a), np.log(b)
    if np.ptp(left) == np.ptp(right) == 0:
        return float(left[0] == right[0])
    return float(scipy_stats.ttest_ind(left, right).pvalue)


def separated(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether all of one side lies above all of the other (medians of the repetitions)."""
    return max(a) < min(b) or max(b) < min(a)


def relative_spread(values: Values) -> float:
    """The interquartile range as a share of the median; 0 for a median of 0."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / middle) if middle else 0.0


def windows(depth: NDArray[np.int64]) -> dict[str, Ranks]:
    """Indices of the first, middle and last tenth of the way through the conversation.

    The way is the depth of the thread at each sample, and the order of the samples where depths
    are equal: threads are driven one after another, so that in plain order the first tenth would
    be whole threads and growth would not show. With one thread both orders are the same. Empty
    below 3 * `WINDOW_MIN_N` samples.
    """
    n = depth.size
    size = max(WINDOW_MIN_N, round(n * WINDOW_SHARE))
    if n < 3 * WINDOW_MIN_N:
        return {}
    order = np.argsort(depth, kind="stable")
    start = (n - size) // 2
    return {
        "first": order[:size],
        "middle": order[start : start + size],
        "last": order[n - size :],
    }


@dataclass(frozen=True, slots=True)
class Growth:
    """y grows with x to the power `exponent`; `low` and `high` are None where n is too small.

    `n` is the number of different x, `fit` the share of log(y)'s variance that the power explains:
    a low one means that no single power describes the growth.
    """

    exponent: float
    low: float | None
    high: float | None
    n: int
    fit: float

    def __str__(self) -> str:
        """`1.02 (0.98 to 1.06)`, or the exponent and that n is too small for an interval."""
        if self.low is None or self.high is None:
            return f"{self.exponent:.2f} ({TOO_FEW})"
        return f"{self.exponent:.2f} ({self.low:.2f} to {self.high:.2f})"


def growth(x: Sequence[float], y: Sequence[float]) -> Growth | None:
    """The exponent of y's growth with x: least squares on the logarithms, interval by Student's t.

    Several y of one x become their median first: samples of one trial share a minute, and would
    make the interval look narrower than it is. None below two different x above zero.
    """
    positive = [(a, b) for a, b in zip(x, y, strict=True) if a > 0 and b > 0]
    places = sorted({a for a, _ in positive})
    if len(places) < 2:
        return None
    middles = [float(np.median([b for a, b in positive if a == place])) for place in places]
    n = len(places)
    if not np.ptp(middles):  # a flat line has no correlation to speak of, and fits
        end = 0.0 if n >= GROWTH_MIN_N else None
        return Growth(0.0, end, end, n, 1.0)
    line = scipy_stats.linregress(np.log(places), np.log(middles))
    slope, fit = float(line.slope), float(line.rvalue) ** 2
    if n < GROWTH_MIN_N:
        return Growth(slope, None, None, n, fit)
    reach = float(scipy_stats.t.ppf(0.5 + CONFIDENCE / 2, n - 2) * line.stderr)
    return Growth(slope, slope - reach, slope + reach, n, fit)


@dataclass(frozen=True, slots=True)
class Change:
    """What changed from one version to the next one: the ratio of medians and a rank test's p.

    `p` is None where a side has fewer than `INTERVAL_MIN_N` values; it is adjusted for the number
    of steps that were looked at, by the false discovery rate.
    """

    ratio: Interval
    p: float | None


def changes(versions: Sequence[Values], seed: int = SEED) -> list[Change]:
    """The change at each step from a version's values to the next one's; all above zero."""
    steps = list(pairwise(versions))
    tested = [min(a.size, b.size) >= INTERVAL_MIN_N for a, b in steps]
    raw = [rank_test(a, b) for (a, b), enough in zip(steps, tested, strict=True) if enough]
    adjusted = iter(scipy_stats.false_discovery_control(raw) if raw else ())
    return [
        Change(median_ratio(a, b, seed), float(next(adjusted)) if enough else None)
        for (a, b), enough in zip(steps, tested, strict=True)
    ]


def shown(value: float | None, form: str = "{:g}") -> str:
    """A statistic for a table: `TOO_FEW` where the samples did not carry it."""
    return TOO_FEW if value is None or np.isnan(value) else form.format(value)
