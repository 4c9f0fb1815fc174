"""Medians and means with their intervals, and comparisons of two trials.

A 95% interval contains the true median in 95% of samples of three values or more, if the values or their logarithms are
roughly normally distributed; a simulation in the tests verifies it.

- Below `MIN_PERCENTILE` values: a parametric, studentised bootstrap of the median (Davison & Hinkley, Bootstrap Methods
  and their Application, 1997, sections 2.2 and 5.2). The interval is median +- c s. s is the sample standard deviation;
  c comes from samples of that size drawn from a normal distribution. Positive quantities are replaced by their
  logarithms. A percentile bootstrap of three values would be their range, which contains the true median 3 times in 4.
- Shares of n samples have steps of 1/n, their resolution. Equal values of a few repeats say nothing of how much smaller
  the spread is than a step, so it counts as half a step at least. A median of values with steps is itself on a step, so
  the interval reaches one step to both sides at least. Without these rules up to 18% of verdicts are false where the
  standard deviation is about a step.
- From `MIN_PERCENTILE` values on: a percentile bootstrap of the median, with percentiles widened for the sample size
  (expanded percentile interval: Hesterberg, What Teachers Should Know About the Bootstrap, The American Statistician
  69, 2015).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

MIN_REPEATS = 3
"""Fewer values have no interval."""

MIN_PERCENTILE = 20
"""Fewer values have a parametric interval."""

_LEVEL = 0.95
_DRAWS = 4000
_SHAPE_DRAWS = 100_000
_RESOLVED = 0.999
_ROUNDING = 1e-9
"""A difference of one step is not distinguished from none by the rounding of its last digit."""

Quantity = Literal["rate", "amount", "ratio", "share", "value"]
"""rate: units per second; amount: seconds, memory, losses; ratio: of two rates or amounts. These three are positive.
share: from 0 to 1, as accuracies. value: any number."""


@dataclass(frozen=True)
class Estimate:
    """The median of some values of one quantity and its 95% interval."""

    values: tuple[float, ...]
    quantity: Quantity = "value"
    level: float = _LEVEL
    """Confidence level of the interval; above 0.95 if several intervals must be right together."""
    resolution: float = 0.0
    """The smallest step of the values, as 1 / n of a share of n samples; 0 where they have none."""
    is_exact: bool = False
    """Whether the quantity is the same in every repeat, so that equal values have an interval from one value on."""

    @property
    def n(self) -> int:
        return len(self.values)

    @cached_property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def centre(self) -> float:
        """The median."""
        return self.median

    @property
    def low(self) -> float | None:
        """None with fewer than `MIN_REPEATS` values, but for equal values of an exact quantity."""
        return self._interval[0]

    @property
    def high(self) -> float | None:
        return self._interval[1]

    @property
    def mean(self) -> float:
        """Harmonic mean of rates, geometric mean of ratios, else arithmetic mean (Hoefler & Belli, SC'15)."""
        if self._is_positive:
            if self.quantity == "rate":
                return statistics.harmonic_mean(self.values)
            if self.quantity == "ratio":
                return statistics.geometric_mean(self.values)
        try:
            return statistics.fmean(self.values)
        except OverflowError:  # their sum is no number, though their mean is one
            return math.fsum(value / self.n for value in self.values)

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation; None with one value."""
        return _deviation(self.values) if self.n > 1 else None

    @property
    def _is_positive(self) -> bool:
        return self.quantity in ("rate", "amount", "ratio") and min(self.values) > 0

    @cached_property
    def _interval(self) -> tuple[float, float] | tuple[None, None]:
        # Computed on demand: most metrics are shown by their median only.
        is_equal = self.values.count(self.values[0]) == self.n
        if self.n < MIN_REPEATS and not (self.is_exact and is_equal):
            return None, None
        if not self.resolution and is_equal:
            return self.values[0], self.values[0]  # exactly, without rounding errors of logarithms
        step = self.resolution * (1 + _ROUNDING)
        if self.n >= MIN_PERCENTILE:
            low, high = _percentile_interval(self.values, self.level)
            return self._bounded(min(low, self.median - step), max(high, self.median + step))
        values = [math.log(value) for value in self.values] if self._is_positive else self.values
        spread = max(_deviation(values), self.resolution / 2)
        middle, half_width = statistics.median(values), max(_half_width(self.n, self.level) * spread, step)
        low, high = middle - half_width, middle + half_width
        if self._is_positive:
            return math.exp(low), _exp(high)
        return self._bounded(low, high)

    def _bounded(self, low: float, high: float) -> tuple[float, float]:
        """An interval without the values that the quantity cannot have."""
        low = low if self.quantity == "value" else max(low, 0.0)
        return low, min(high, 1.0) if self.quantity == "share" else high


@dataclass(frozen=True)
class Interval:
    """A number with an interval that was not computed from the median of a sample; without ends, none is known."""

    centre: float
    low: float | None
    high: float | None


def estimate(
    values: Sequence[float],
    quantity: Quantity = "value",
    *,
    level: float = _LEVEL,
    resolution: float = 0.0,
    is_exact: bool = False,
) -> Estimate:
    """Return the median of one value or more, with an interval from `MIN_REPEATS` values on."""
    return Estimate(tuple(map(float, values)), quantity, level, resolution, is_exact)


def mean_interval(values: Sequence[float], level: float = _LEVEL, resolution: float = 0.0) -> Interval:
    """Return the mean of one value or more, with Student's interval from `MIN_REPEATS` on.

    Args:
        values: the values.
        level: confidence level of the interval.
        resolution: the smallest step of the values; their spread counts as half of it at least.
    """
    centre = statistics.fmean(values)
    if len(values) < MIN_REPEATS:
        return Interval(centre, None, None)
    from scipy.special import stdtrit

    # Exactly 0 for equal values, without rounding errors.
    spread = 0.0 if min(values) == max(values) else statistics.stdev(values)
    spread = max(spread, resolution / 2)
    half_width = float(stdtrit(len(values) - 1, 0.5 + level / 2)) * spread / math.sqrt(len(values))
    return Interval(centre, centre - half_width, centre + half_width)


def bonferroni_level(count: int) -> float:
    """Return the confidence level of each of `count` intervals so that all are right 95 times in 100 (Bonferroni)."""
    return 1 - (1 - _LEVEL) / max(count, 1)


def difference(
    values: Mapping[int, float], base: Mapping[int, float], *, level: float = _LEVEL, resolution: float = 0.0
) -> Estimate | None:
    """Return values minus base, paired by block; None without a common block."""
    blocks = sorted(values.keys() & base.keys())
    differences = [values[block] - base[block] for block in blocks]
    return estimate(differences, level=level, resolution=resolution) if blocks else None


def compare(
    rates: Mapping[int, float], base: Mapping[int, float], *, level: float = _LEVEL, is_exact: bool = False
) -> Estimate | None:
    """Return the ratio of two trials' rates, paired by block; None without a common block.

    Args:
        rates: block -> rate (more is faster).
        base: block -> rate of the baseline.
        level: confidence level of the interval.
        is_exact: whether the quantity is the same in every repeat.
    """
    blocks = sorted(rates.keys() & base.keys())
    ratios = [rates[block] / base[block] for block in blocks]
    return estimate(ratios, "ratio", level=level, is_exact=is_exact) if blocks else None


def compare_apart(
    rates: Sequence[float], base: Sequence[float], *, level: float = _LEVEL, is_exact: bool = False
) -> Interval:
    """Return the ratio of the geometric means of two trials' rates without common blocks, with Welch's interval.

    Args:
        rates: rates of one trial (more is faster), each above 0.
        base: rates of the baseline.
        level: confidence level of the interval.
        is_exact: whether the quantity is the same in every repeat.
    """
    logs, base_logs = np.log(rates), np.log(base)
    centre = float(np.exp(logs.mean() - base_logs.mean()))
    is_equal = bool(np.ptp(logs) == 0 and np.ptp(base_logs) == 0)
    if min(len(logs), len(base_logs)) < MIN_REPEATS and not (is_exact and is_equal):
        return Interval(centre, None, None)
    if is_equal:
        return Interval(centre, centre, centre)
    from scipy.special import stdtrit

    # Not by scipy.stats.ttest_ind: it warns if the values of one side are equal, as a GPU's memory often is.
    parts = [side.var(ddof=1) / len(side) for side in (logs, base_logs)]
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (len(logs) - 1) + parts[1] ** 2 / (len(base_logs) - 1))
    half_width = float(stdtrit(degrees, 0.5 + level / 2)) * math.sqrt(sum(parts))
    return Interval(centre, centre * math.exp(-half_width), centre * _exp(half_width))


def is_above(value: Estimate | Interval | None, bound: float) -> bool:
    """Whether a value has an interval, and all of it lies above a bound."""
    return value is not None and value.low is not None and value.low > bound


def is_below(value: Estimate | Interval | None, bound: float) -> bool:
    """Whether a value has an interval, and all of it lies below a bound."""
    return value is not None and value.high is not None and value.high < bound


def verdict_of(value: Estimate | Interval, null: float, above: str, below: str) -> str:
    """Return a word for where an interval lies.

    Args:
        value: a ratio or a difference of two trials.
        null: the value that means no difference.
        above: the word for an interval above it.
        below: the word for an interval below it.

    Returns:
        `indistinguishable` for an interval that contains `null`, `unknown` without an interval.
    """
    if value.low is None or value.high is None:
        return "unknown"
    return above if value.low > null else below if value.high < null else "indistinguishable"


def _exp(value: float) -> float:
    """Return exp(value), or infinity where it overflows."""
    return math.exp(value) if value < 700 else math.inf


def _deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation; `statistics.stdev` computes with fractions and is 100 times slower."""
    try:
        mean = math.fsum(values) / len(values)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    except OverflowError:
        return math.inf


@cache
def _half_width(count: int, level: float) -> float:
    """Half-width of the interval of a median, in sample standard deviations, for `count` normal values at confidence
    `level`. Above the level that the draws resolve, it grows as Student's t.
    """
    if level <= _RESOLVED:
        return float(np.quantile(_median_errors(count), level))
    from scipy.special import stdtrit

    tails = (stdtrit(count - 1, 0.5 + confidence / 2) for confidence in (level, _RESOLVED))
    return float(np.quantile(_median_errors(count), _RESOLVED) * next(tails) / next(tails))


@cache
def _median_errors(count: int) -> NDArray[np.float64]:
    """Return the error of the median in sample standard deviations, of many samples of `count` normal values."""
    samples = np.random.default_rng(0).standard_normal((_SHAPE_DRAWS, count))
    errors: NDArray[np.float64] = np.abs(np.median(samples, axis=1)) / samples.std(axis=1, ddof=1)
    return errors


def _percentile_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    from scipy.special import ndtr, stdtrit

    count = len(values)
    middles, draws = _middles(count)
    medians = np.sort(values)[middles].mean(axis=1)
    order = np.argsort(medians)
    reached = np.cumsum(draws[order])
    # The share of the medians of draws that lie below the lower end, and above the upper one.
    share = float(ndtr(math.sqrt(count / (count - 1)) * stdtrit(count - 1, (1 - level) / 2)))
    low = np.searchsorted(reached, share * _DRAWS)
    high = min(int(np.searchsorted(reached, (1 - share) * _DRAWS, side="right")), len(order) - 1)
    return float(medians[order[low]]), float(medians[order[high]])


@cache
def _middles(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of positions whose mean is the median of a draw with replacement, and how many draws have them.

    Positions in the sorted values depend on `count` only, so they are drawn once: 100 times faster than drawing values.
    """
    half = np.random.default_rng(0).integers(0, count, (_DRAWS // 2, count))
    # Each draw and its mirror image, so that the interval is symmetric for symmetric values.
    draws = np.sort(np.concatenate([half, count - 1 - half]), axis=1)
    middles, counts = np.unique(draws[:, [(count - 1) // 2, count // 2]], axis=0, return_counts=True)
    return middles, counts
