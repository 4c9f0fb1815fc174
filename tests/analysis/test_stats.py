from __future__ import annotations

import numpy as np
import pytest

from dmls_ray.analysis.stats import compare, estimate


def test_fewer_than_three_repeats_have_no_interval() -> None:
    assert (estimate([3.0]).low, estimate([3.0, 4.0]).high) == (None, None)
    assert estimate([3.0, 4.0]).median == 3.5


def test_the_interval_holds_the_median_and_lies_within_the_values() -> None:
    values = estimate([5.0, 1.0, 2.0, 9.0, 4.0])
    assert values.low is not None
    assert values.high is not None
    assert 1 <= values.low <= values.median == 4 <= values.high <= 9


def test_equal_values_give_equal_intervals() -> None:
    assert estimate([1.0, 2.0, 3.0]) == estimate([1.0, 2.0, 3.0])


def test_intervals_narrow_as_repeats_are_added() -> None:
    random = np.random.default_rng(0)
    widths = []
    for n in (5, 20, 80):
        value = estimate(list(random.normal(10, 1, n)))
        assert value.low is not None
        assert value.high is not None
        widths.append(value.high - value.low)
    assert widths == sorted(widths, reverse=True)


def test_comparisons_are_paired_by_block_so_that_drift_cancels() -> None:
    drift = {0: 100.0, 1: 50.0, 2: 200.0, 3: 10.0}
    comparison = compare({block: 1.1 * rate for block, rate in drift.items()}, drift)
    assert comparison is not None
    assert comparison.ratio.median == pytest.approx(1.1)
    assert comparison.verdict == "faster"


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((1.2, 1.3, 1.4), "faster"),
        ((0.5, 0.6, 0.9), "slower"),
        ((0.9, 1.0, 1.1), "indistinguishable"),
        ((2.0, 2.0), "unknown"),
    ],
)
def test_the_verdict_follows_from_the_interval(ratios: tuple[float, ...], verdict: str) -> None:
    comparison = compare(dict(enumerate(ratios)), dict.fromkeys(range(len(ratios)), 1.0))
    assert comparison is not None
    assert comparison.verdict == verdict


def test_trials_without_a_block_in_common_cannot_be_compared() -> None:
    assert compare({0: 1.0}, {1: 1.0}) is None
