"""Means with their intervals: of one trial's repeats, and of two trials that share no block.

The mean of a rate, a time or a size is the geometric one, since their noise is a factor: then the ratio of two printed
means is the mean of the ratios, and a rate and the time that it follows from agree. Others have the arithmetic mean. A
95% interval is Student's (of the logarithms, for geometric means). Trials of one sweep are compared in `block_model`.

Shares of n samples have steps of 1/n, their resolution. Equal values of a few repeats say nothing of how much smaller
the spread is than a step, so it counts as half a step at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import msgspec
import numpy as np

MIN_REPEATS = 3
"""Fewer values have no interval."""

_LEVEL = 0.95
_SAME = 1e-6

Quantity = Literal["rate", "amount", "ratio", "share", "value"]
"""rate: units per second; amount: seconds, memory, losses; ratio: of two rates or amounts. These three are positive.
share: from 0 to 1, as accuracies. value: any number."""


class Interval(msgspec.Struct, frozen=True, rename={"centre": "value"}):
    """A number with its interval; without ends, none is known."""

    centre: float
    low: float | None
    """End of the interval; null where it is not known, as below three repeats."""
    high: float | None

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends; twice the number where none is known."""
        if self.low is None or self.high is None:
            return self.centre, self.centre
        return self.low, self.high


class Estimate(Interval, frozen=True):
    """A number with its 95% interval, as it follows from some repeats."""

    n: int
    """Number of repeats."""


def are_same(values: Sequence[float]) -> bool:
    """Whether values differ by no more than the order of a sum does, as of runs with one seed on several threads."""
    low, high = min(values), max(values)
    return high - low <= _SAME * max(high, -low)


def estimate(
    values: Sequence[float],
    quantity: Quantity = "value",
    *,
    level: float = _LEVEL,
    resolution: float = 0.0,
    is_exact: bool = False,
    is_once: bool = False,
) -> Estimate:
    """Return the mean of one value or more, with an interval from `MIN_REPEATS` values on.

    The mean of rates, amounts and ratios is the geometric one, if all are above 0; else the arithmetic one.

    Args:
        values: the values.
        quantity: what they are.
        level: confidence level of the interval; above 0.95 if several intervals must be right together.
        resolution: the smallest step of the values, as 1 / n of a share of n samples; 0 where they have none.
        is_exact: whether it is the same in every repeat, so that equal values have an interval from one value on.
        is_once: whether the repeats repeat the same run, so that equal values have no interval.
    """
    numbers = tuple([float(value) for value in values])
    is_equal = numbers.count(numbers[0]) == len(numbers)
    is_positive = quantity in ("rate", "amount", "ratio") and min(numbers) > 0
    scaled: Sequence[float] = numbers
    if is_positive:
        scaled = [math.log(number) for number in numbers]
    centre = middle = _mean(scaled)
    if is_equal:
        centre = numbers[0]  # exactly, without rounding errors of logarithms
    elif is_positive:
        centre = math.exp(middle)

    is_enough = len(numbers) >= MIN_REPEATS or (is_exact and is_equal)
    if not is_enough or (is_once and are_same(numbers)):
        return Estimate(centre, None, None, len(numbers))
    if is_equal and not resolution:
        return Estimate(centre, centre, centre, len(numbers))
    # By hand: `statistics.stdev` computes with fractions and is 100 times slower.
    deviation = math.dist(scaled, [middle] * len(scaled)) / math.sqrt(len(scaled) - 1)
    spread = max(resolution / 2, deviation)
    half_width = _student(len(numbers) - 1, level) * spread / math.sqrt(len(numbers))
    low, high = middle - half_width, middle + half_width
    if is_positive:
        return Estimate(centre, math.exp(low), exponential(high), len(numbers))
    if quantity != "value":
        low = max(low, 0.0)
    if quantity == "share":
        high = min(high, 1.0)
    return Estimate(centre, low, high, len(numbers))


def bonferroni_level(count: int) -> float:
    """Return the confidence level of each of `count` intervals so that all are right 95 times in 100 (Bonferroni)."""
    return 1 - (1 - _LEVEL) / max(count, 1)


def compare_apart(
    values: Sequence[float],
    base: Sequence[float],
    *,
    level: float = _LEVEL,
    is_exact: bool = False,
    is_once: bool = False,
    is_ratio: bool = True,
    is_one_of_many: bool = False,
) -> Interval:
    """Compare the means of two trials without common blocks, with Welch's interval.

    Args:
        values: of one trial; where ratios are taken, each above 0.
        base: of the baseline.
        level: confidence level of the interval.
        is_exact: whether the quantity is the same in every repeat.
        is_once: whether the values of a side say no more than one of them.
        is_ratio: whether to take the ratio of the geometric means, rather than the difference of the arithmetic ones.
        is_one_of_many: whether the level is far above 0.95, where Welch's degrees of freedom are too many for a side of
            few values; those of the smaller side never are (Mickey and Brown 1966).
    """
    a, b = np.asarray(values, float), np.asarray(base, float)
    shown: Callable[[float], float] = float
    if is_ratio:
        a, b, shown = np.log(a), np.log(b), exponential
    middle = float(a.mean() - b.mean())
    is_equal = bool(np.ptp(a) == 0 and np.ptp(b) == 0)
    is_enough = min(len(a), len(b)) >= MIN_REPEATS or (is_exact and is_equal)
    if is_once or not is_enough:
        return Interval(shown(middle), None, None)
    half_width = 0.0
    if not is_equal:
        # Not by scipy.stats.ttest_ind: it warns if the values of one side are equal, as a GPU's memory often is.
        error_a, error_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
        variance = error_a + error_b
        degrees = variance**2 / (error_a**2 / (len(a) - 1) + error_b**2 / (len(b) - 1))
        if is_one_of_many:
            degrees = min(len(a), len(b)) - 1
        half_width = _student(degrees, level) * math.sqrt(variance)
    return Interval(shown(middle), shown(middle - half_width), shown(middle + half_width))


def deviation_factors(n: int) -> tuple[float, float]:
    """Return the ends of the 95% interval of a standard deviation of n normal values, as multiples of it."""
    from scipy.special import chdtri

    tail = (1 - _LEVEL) / 2
    return math.sqrt((n - 1) / chdtri(n - 1, tail)), math.sqrt((n - 1) / chdtri(n - 1, 1 - tail))


def is_above(value: Interval | None, bound: float) -> bool:
    """Whether a value has an interval, and all of it lies above a bound."""
    return value is not None and value.low is not None and value.low > bound


def is_below(value: Interval | None, bound: float) -> bool:
    """Whether a value has an interval, and all of it lies below a bound."""
    return value is not None and value.high is not None and value.high < bound


def verdict_of(value: Interval, null: float, above: str, below: str) -> str:
    """Return a word for where an interval lies.

    Args:
        value: a ratio or a difference of two trials.
        null: the value that means no difference.
        above: the word for an interval above it.
        below: the word for an interval below it.

    Returns:
        `not distinguished` for an interval that contains `null`, `unknown` without an interval.
    """
    if value.low is None or value.high is None:
        return "unknown"
    if value.low > null:
        return above
    if value.high < null:
        return below
    return "not distinguished"


def exponential(value: float) -> float:
    """Return exp(value), or infinity where that overflows."""
    if value < 700:
        return math.exp(value)
    return math.inf


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # their sum is no number, though their mean is one
        return math.fsum(value / len(values) for value in values)


@cache
def _student(degrees: float, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + level / 2))
