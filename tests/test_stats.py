"""Intervals cover, tests have power, and small n says so; all on seeded data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from savermark import stats


def _lognormal(rng: np.random.Generator, n: int, median: float = 1e6) -> np.ndarray:
    return median * rng.lognormal(0.0, 0.3, n)


@pytest.mark.parametrize(
    ("n", "least"),
    # The percentile bootstrap of a median is a little short for few samples, and says so here.
    [(6, 0.86), (10, 0.90), (21, 0.92), (60, 0.93), (501, 0.93)],
)
def test_interval_covers_the_true_median(n: int, least: float) -> None:
    rng = np.random.default_rng(7)
    rounds, hits = 600, 0
    for seed in range(rounds):
        found = stats.median_interval(_lognormal(rng, n), seed)
        assert found.low is not None and found.high is not None
        hits += found.low <= 1e6 <= found.high
    assert least <= hits / rounds <= 0.995


@pytest.mark.parametrize("true", [1.0, 1.3])
def test_ratio_interval_covers_the_true_ratio(true: float) -> None:
    rng = np.random.default_rng(11)
    rounds, hits = 400, 0
    for seed in range(rounds):
        a, b = _lognormal(rng, 30), _lognormal(rng, 40, 1e6 * true)
        found = stats.median_ratio(a, b, seed)
        assert found.low is not None and found.high is not None
        hits += found.low <= true <= found.high
    assert 0.92 <= hits / rounds <= 0.995


@pytest.mark.parametrize("n", [9, 10, 75, 400])
def test_ranks_drawn_directly_equal_real_resampling(n: int) -> None:
    values = _lognormal(np.random.default_rng(n), n)
    ours = stats.bootstrap_medians(values, 1, 20_000)
    drawn = scipy_stats.bootstrap(
        (values,),
        np.median,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).bootstrap_distribution
    for q in (2.5, 25, 50, 75, 97.5):
        near = np.percentile(drawn, [max(0, q - 2), min(100, q + 2)])
        assert near[0] <= np.percentile(ours, q) <= near[1]


def test_same_samples_same_interval() -> None:
    values = _lognormal(np.random.default_rng(3), 50)
    assert stats.median_interval(values) == stats.median_interval(values.copy())


def test_few_samples_have_a_median_but_no_interval() -> None:
    found = stats.median_interval(np.array([3.0, 1.0, 2.0]))
    assert found == stats.Interval(2.0, None, None)
    assert stats.median_ratio(np.array([1.0] * 3), np.array([2.0] * 30)).low is None


@pytest.mark.parametrize(("q", "needs"), [(90, 10), (95, 20), (99, 100)])
def test_percentile_needs_samples_beyond_it(q: int, needs: int) -> None:
    assert stats.percentiles(np.arange(needs - 1, dtype=float), [q]) == [None]
    values = np.arange(needs, dtype=float)
    assert stats.percentiles(values, [50, q]) == [np.median(values), np.percentile(values, q)]


def test_percentiles_of_nothing_are_missing() -> None:
    assert stats.percentiles(np.empty(0), [50, 99]) == [None, None]


def test_rank_test_has_power_and_a_quiet_null() -> None:
    rng = np.random.default_rng(5)
    same = [stats.rank_test(_lognormal(rng, 30), _lognormal(rng, 30)) for _ in range(300)]
    moved = [stats.rank_test(_lognormal(rng, 30), _lognormal(rng, 30, 1.4e6)) for _ in range(300)]
    assert np.mean(np.array(same) < 0.01) <= 0.03
    assert np.mean(np.array(moved) < 0.01) >= 0.90


def test_rank_test_of_equal_values_is_one() -> None:
    assert stats.rank_test(np.full(20, 5.0), np.full(30, 5.0)) == 1.0
    assert stats.rank_test(np.full(20, 5.0), np.full(20, 6.0)) < 0.001


def test_repetitions_are_tested_on_a_ratio_scale() -> None:
    close, far = [1.0, 1.04, 0.98], [1.5, 1.44, 1.53]
    assert stats.repetition_test(close, far) < 0.005 < stats.repetition_test(close, [1.5, 1.0, 2.2])
    scaled = stats.repetition_test([1e9 * x for x in close], [1e9 * x for x in far])
    assert scaled == pytest.approx(stats.repetition_test(close, far))
    assert stats.repetition_test([2, 2, 2], [2, 2]) == 1.0
    assert stats.repetition_test([2, 2, 2], [3, 3]) == 0.0


def test_the_test_over_repetitions_has_power_and_a_quiet_null() -> None:
    rng = np.random.default_rng(2)
    null = [stats.repetition_test(*rng.lognormal(0, 0.3, (2, 3))) for _ in range(500)]
    moved = [
        stats.repetition_test(rng.lognormal(0, 0.035, 3), 1.3 * rng.lognormal(0, 0.035, 3))
        for _ in range(200)
    ]
    assert np.mean(np.array(null) < 0.005) <= 0.015
    assert np.mean(np.array(moved) < 0.005) >= 0.85


def test_separated_asks_for_a_gap_between_all_repetitions() -> None:
    assert stats.separated([1, 2, 3], [4, 5])
    assert stats.separated([4, 5], [1, 2, 3])
    assert not stats.separated([1, 2, 4.5], [4, 5])


def test_relative_spread() -> None:
    assert stats.relative_spread(np.array([1.0, 2.0, 3.0])) == pytest.approx(0.5)
    assert stats.relative_spread(np.zeros(4)) == 0.0


def test_windows_of_one_thread_are_tenths_in_order() -> None:
    found = stats.windows(np.arange(100))
    assert found["first"].tolist() == list(range(10))
    assert found["middle"].tolist() == list(range(45, 55))
    assert found["last"].tolist() == list(range(90, 100))


def test_windows_follow_depth_over_several_threads() -> None:
    depth = np.tile(np.arange(20), 5)
    found = stats.windows(depth)
    assert set(depth[found["first"]]) == {0, 1}
    assert set(depth[found["last"]]) == {18, 19}


def test_windows_of_few_samples() -> None:
    assert stats.windows(np.arange(14)) == {}
    found = stats.windows(np.arange(15))
    assert [len(found[name]) for name in ("first", "middle", "last")] == [5, 5, 5]
