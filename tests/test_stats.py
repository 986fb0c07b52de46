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


@pytest.mark.parametrize(("true", "points"), [(1.0, 5), (2.0, 4), (0.0, 12)])
def test_growth_interval_covers_the_true_exponent(true: float, points: int) -> None:
    rng = np.random.default_rng(17)
    x = np.geomspace(10, 5_000, points)
    hits, rounds = 0, 1_000
    for _ in range(rounds):
        found = stats.growth(x.tolist(), (3e4 * x**true * rng.lognormal(0, 0.1, points)).tolist())
        assert found is not None and found.low is not None and found.high is not None
        hits += found.low <= true <= found.high
    assert 0.93 <= hits / rounds <= 0.97


def test_growth_tells_linear_from_quadratic() -> None:
    rng = np.random.default_rng(23)
    x = np.array([10.0, 100, 1000, 5000])
    told = 0
    for _ in range(200):
        linear = stats.growth(x.tolist(), (x * rng.lognormal(0, 0.15, 4)).tolist())
        assert linear is not None and linear.high is not None
        told += linear.high < 2
    assert told >= 195


def test_growth_of_a_law_without_noise_is_exact() -> None:
    found = stats.growth([10, 100, 1000, 5000], [7 * x**1.5 for x in (10, 100, 1000, 5000)])
    assert found is not None
    assert found.exponent == pytest.approx(1.5) and found.fit == pytest.approx(1)
    assert found.low == pytest.approx(1.5) and found.high == pytest.approx(1.5)


def test_growth_takes_the_median_of_each_place() -> None:
    once = stats.growth([1, 10, 100, 1000], [1, 11, 98, 1020])
    thrice = stats.growth(
        [1, 10, 100, 1000] * 3, [1, 11, 98, 1020, 0.5, 9, 90, 900, 1.5, 70, 800, 9000]
    )
    assert once == thrice
    assert once is not None and once.n == 4


def test_growth_of_few_points_has_no_interval() -> None:
    found = stats.growth([10, 100, 1000], [1, 10, 100])
    assert found is not None and (found.low, found.high, found.n) == (None, None, 3)
    assert str(found) == "1.00 (n too small)"
    assert stats.growth([10, 10], [1, 2]) is None
    assert stats.growth([0, 10, 20], [1, 0, 2]) is None
    flat = stats.growth([1, 10, 100, 1000], [5, 5, 5, 5])
    assert flat is not None and (flat.exponent, flat.fit) == (0.0, 1.0)
    assert str(flat) == "0.00 (0.00 to 0.00)"


def test_a_change_is_found_where_it_happened() -> None:
    rng = np.random.default_rng(29)
    versions = [_lognormal(rng, 30, median) for median in (1e6, 1e6, 1.4e6, 1.4e6)]
    found = stats.changes(versions)
    assert [change.p is not None and change.p < 0.01 for change in found] == [False, True, False]
    low, high = found[1].ratio.low, found[1].ratio.high
    assert low is not None and high is not None and low < 1.4 < high


def test_many_unchanged_versions_raise_few_alarms() -> None:
    rng = np.random.default_rng(31)
    alarms = 0
    for _ in range(60):
        found = stats.changes([_lognormal(rng, 20) for _ in range(11)])
        alarms += any(change.p is not None and change.p < 0.05 for change in found)
    assert alarms <= 6  # about one in twenty histories, however many steps each has


def test_versions_with_few_values_have_a_ratio_and_no_p() -> None:
    found = stats.changes([np.array([2.0]), np.array([3.0]), np.full(8, 3.0), np.full(8, 6.0)])
    assert [change.ratio.value for change in found] == [1.5, 1.0, 2.0]
    assert [change.p is None for change in found] == [True, True, False]
    assert stats.changes([np.array([1.0])]) == []


def test_what_n_does_not_carry_is_said_in_words() -> None:
    (tail,) = stats.percentiles(np.arange(99, dtype=float), [99])
    assert stats.shown(tail) == stats.shown(float("nan")) == "n too small"
    assert stats.shown(1.25, "{:.1f} ms") == "1.2 ms"
