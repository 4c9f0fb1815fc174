from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from dmls_ray.analysis.stats.block_model import BlockModel, Contrast
from dmls_ray.analysis.stats.intervals import (
    Interval,
    Quantity,
    bonferroni_level,
    compare_apart,
    deviation_factors,
    estimate,
    is_above,
    is_below,
    verdict_of,
)
from dmls_ray.records.codec import encode_json

DRAWS = 500


def compare(rates: Mapping[int, float], base: Mapping[int, float]) -> Contrast:
    return BlockModel({"one": rates, "base": base}, is_ratio=True).against("one", "base")


def difference(values: Mapping[int, float], base: Mapping[int, float], **options: float) -> Contrast:
    return BlockModel({"one": values, "base": base}, is_ratio=False, **options).against("one", "base")


def speed(ratio: Interval) -> str:
    return verdict_of(ratio, 1, "faster", "slower")


def test_json_has_the_number_as_value_and_null_for_an_end_that_is_not_known_or_infinite() -> None:
    assert json.loads(encode_json(estimate([2.0]))) == {"value": 2.0, "low": None, "high": None, "n": 1}
    assert json.loads(encode_json(Interval(1.0, 0.5, math.inf))) == {"value": 1.0, "low": 0.5, "high": None}


def normal(random: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return random.normal(10, 1, size)


def lognormal(random: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return 10 * random.lognormal(0, 0.4, size)


@pytest.mark.parametrize("n", [3, 4, 5, 8, 12, 19, 20, 40])
@pytest.mark.parametrize(("quantity", "drawn"), [("value", normal), ("amount", lognormal)])
def test_intervals_hold_the_true_mean_95_times_in_100(
    quantity: Quantity, drawn: Callable[[np.random.Generator, tuple[int, int]], np.ndarray], n: int
) -> None:
    covered = 0
    for values in drawn(np.random.default_rng(1), (DRAWS, n)):
        low, high = estimate(values, quantity).ends
        covered += low <= 10 <= high
    assert 0.92 <= covered / DRAWS <= 0.98


@pytest.mark.parametrize("n", [3, 5, 10])
def test_what_is_equally_fast_is_called_faster_at_most_5_times_in_100(n: int) -> None:
    random = np.random.default_rng(2)
    verdicts = []
    for _ in range(DRAWS):
        drift = random.lognormal(0, 0.3, n)  # the machine's, in each block alike
        one, other = (dict(enumerate(100 * drift * random.lognormal(0, 0.05, n))) for _ in range(2))
        verdicts.append(speed(compare(one, other)))
    assert verdicts.count("faster") / DRAWS <= 0.05
    assert verdicts.count("slower") / DRAWS <= 0.05
    assert verdicts.count("not distinguished") / DRAWS >= 0.92


def test_two_trials_apart_are_called_faster_at_most_5_times_in_100_where_they_are_not() -> None:
    random = np.random.default_rng(3)
    verdicts = []
    for _ in range(DRAWS):
        verdicts.append(speed(compare_apart(random.lognormal(4, 0.05, 3).tolist(), random.lognormal(4, 0.1, 5))))
    assert verdicts.count("faster") / DRAWS <= 0.05
    assert verdicts.count("slower") / DRAWS <= 0.05


@pytest.mark.parametrize(("gain", "n", "least"), [(1.2, 5, 0.95), (1.06, 16, 0.95), (1.06, 32, 0.99)])
def test_what_is_faster_is_called_faster_with_enough_repeats(gain: float, n: int, least: float) -> None:
    random = np.random.default_rng(4)
    found = 0
    for _ in range(DRAWS):
        one, base = (dict(enumerate(rate * random.lognormal(0, 0.03, n))) for rate in (gain, 1.0))
        found += is_above(compare(one, base), 1)
    assert found / DRAWS >= least


def test_the_interval_of_few_values_reaches_beyond_them_and_never_beyond_what_can_be() -> None:
    low, high = estimate([17_689.0, 19_572.0, 20_760.0], "rate").ends
    assert 0 < low < 17_689 < 20_760 < high
    low, high = estimate([0.9, 0.97, 0.99], "share").ends
    assert (low < 0.9, high) == (True, 1.0)
    assert estimate([0.0, 0.1, 0.2], "amount").low == 0.0  # it has no logarithm, and less than nothing there is not
    assert estimate([1e-300, 1.0, 1e300], "rate").high == math.inf
    assert estimate([0.1, 0.1, 0.1], "rate").ends == (0.1, 0.1)


@pytest.mark.parametrize("n", [3, 5, 10, 30])
@pytest.mark.parametrize("deviation", [0.3, 1.0, 3.0])
def test_accuracies_that_take_few_values_differ_at_most_5_times_in_100_where_they_do_not(
    deviation: float, n: int
) -> None:
    random = np.random.default_rng(7)
    verdicts = []
    for _ in range(DRAWS):
        rights = np.rint(309.5 + random.uniform() + random.normal(0, deviation / math.sqrt(2), (2, n)))
        one, other = (dict(enumerate(side / 359)) for side in rights)
        verdicts.append(verdict_of(difference(one, other, resolution=1 / 359), 0, "higher", "lower"))
    assert verdicts.count("higher") + verdicts.count("lower") <= 0.08 * DRAWS, "6.2% in 20,000 draws, and chance"


@pytest.mark.parametrize("n", [3, 10, 25])
def test_equal_differences_of_one_test_sample_need_more_than_three_repeats_to_be_distinguished(n: int) -> None:
    def verdict(samples: int) -> str:
        base = {block: (300 + block % 4) / 359 for block in range(n)}
        found = difference({block: value - samples / 359 for block, value in base.items()}, base, resolution=1 / 359)
        return verdict_of(found, 0, "higher", "lower")

    assert verdict(0) == "not distinguished"
    assert verdict(1) == ("not distinguished" if n == 3 else "lower")
    assert verdict(2) == "lower"


def test_the_interval_of_equal_accuracies_has_the_spread_of_half_a_sample_and_lies_within_0_and_1() -> None:
    half_width = 4.302653 * 0.005 / math.sqrt(3)
    same = estimate([0.5] * 3, "share", resolution=0.01)
    assert same.ends == pytest.approx((0.5 - half_width, 0.5 + half_width))
    assert estimate([1.0] * 3, "share", resolution=0.01).high == 1.0
    assert estimate([0.0] * 25, "share", resolution=0.01).low == 0.0


def test_intervals_that_are_to_hold_together_do() -> None:
    random = np.random.default_rng(6)
    level, covered = bonferroni_level(6), 0
    for _ in range(DRAWS):
        intervals = [estimate(list(random.normal(10, 1, 3)), level=level).ends for _ in range(6)]
        covered += all(low <= 10 <= high for low, high in intervals)
    assert covered / DRAWS >= 0.92


def test_the_ratio_of_two_printed_values_is_the_printed_ratio_and_a_rate_agrees_with_its_time() -> None:
    fast, slow = [50.0, 200.0, 90.0], [25.0, 60.0, 70.0]
    of_fast, of_slow = dict(enumerate(fast)), dict(enumerate(slow))
    ratio = estimate(fast, "rate").centre / estimate(slow, "rate").centre
    assert compare(of_fast, of_slow).centre == pytest.approx(ratio)
    assert estimate([1 / rate for rate in fast], "amount").centre == pytest.approx(1 / estimate(fast, "rate").centre)
    assert difference(of_fast, of_slow).centre == pytest.approx(estimate(fast).centre - estimate(slow).centre)


def test_a_mean_of_factors_is_geometric_and_of_others_arithmetic() -> None:
    assert estimate([50.0, 200.0], "rate").centre == pytest.approx(100)
    assert estimate([0.5, 2.0], "ratio").centre == pytest.approx(1)
    assert estimate([1.0, 3.0]).centre == 2
    assert estimate([0.0, 3.0], "amount").centre == 1.5  # 0 has no logarithm
    assert estimate([1e308, 1e308, 1e308]).centre == pytest.approx(1e308)  # their sum is no number


def test_comparisons_are_paired_by_block_so_that_drift_cancels() -> None:
    drift = {0: 100.0, 1: 50.0, 2: 200.0, 3: 10.0}
    comparison = compare({block: 1.1 * rate for block, rate in drift.items()}, drift)
    assert (comparison.centre, speed(comparison)) == (pytest.approx(1.1), "faster")
    assert difference({block: rate + 1 for block, rate in drift.items()}, drift).ends == (1, 1)


def test_an_interval_lies_above_or_below_a_bound_only_as_a_whole_and_only_where_it_has_ends() -> None:
    assert is_above(Interval(2, 1.5, 3), 1)
    assert is_below(Interval(2, 1, 3), 3.5)
    for value in (Interval(2, 1, 3), Interval(2, None, None), None):
        assert not is_above(value, 1)
        assert not is_below(value, 3)


def test_students_interval_of_a_mean_needs_three_repeats() -> None:
    assert estimate([1.0, 2.0, 3.0]).low == pytest.approx(2 - 4.302653 / math.sqrt(3), rel=1e-5)
    assert (estimate([3.0]).low, estimate([3.0, 4.0]).high) == (None, None)


def test_trials_apart_are_compared_by_their_geometric_means() -> None:
    found = compare_apart([1.0, 4.0, 2.0], [1.0, 1.0, 1.0])
    assert (found.centre, speed(found)) == (pytest.approx(2), "not distinguished")
    assert speed(compare_apart([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])) == "faster"
    assert speed(compare_apart([2.0, 2.0], [1.0, 1.0, 1.0])) == "unknown"


def test_trials_measured_apart_may_have_equal_values_on_one_side() -> None:
    comparison = compare_apart([100.0] * 3, [100.0 * math.exp(value) for value in (-0.1, 0.0, 0.1)])
    # Welch's degrees of freedom are those of the side that varies: Student's t of 2.
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert comparison.ends == pytest.approx((math.exp(-half), math.exp(half)), rel=1e-4)


def test_the_interval_of_a_deviation_has_it_in_95_of_100_samples() -> None:
    deviations = np.random.default_rng(0).normal(0, 3, (2000, 8)).std(axis=1, ddof=1)
    low, high = deviation_factors(8)
    assert np.mean((deviations * low < 3) & (deviations * high > 3)) == pytest.approx(0.95, abs=0.015)
