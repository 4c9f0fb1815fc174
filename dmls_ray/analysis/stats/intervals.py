"""Medians with bootstrap intervals, means as they should be taken, and comparisons.

An interval holds the truth 95 times in 100 from three values on where they are roughly normally distributed, or their
logarithms are; a simulation in the tests verifies it.

- Below `MIN_PERCENTILE` values only an assumed shape says how far the truth may lie outside of them: a percentile
  bootstrap of three values is their range, which holds the true median 3 times in 4, and later on it needs half as many
  values again for the same power. So the interval is a parametric, studentised bootstrap of the median (Davison &
  Hinkley, Bootstrap Methods and their Application, 1997, sections 2.2 and 5.2): median +- c s, where s is the sample's
  standard deviation and c is found by drawing samples of that size from a normal distribution. Quantities that are
  positive by nature are taken by their logarithms.
- From there on it is a percentile bootstrap of the median, its shares widened for the sample's size as Hesterberg says
  (What Teachers Should Know About the Bootstrap, The American Statistician 69, 2015: the expanded percentile interval).
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
"""Fewer values have an interval by an assumed shape."""

_LEVEL = 0.95
_DRAWS = 4000
_SHAPE_DRAWS = 100_000
_RESOLVED = 0.999

Quantity = Literal["rate", "amount", "ratio", "share", "value"]
"""rate: more in a second; amount: seconds, memory, losses; ratio: of two of those; all of these are positive. share:
from 0 to 1, as accuracies are. value: any number."""

Verdict = Literal["faster", "slower", "indistinguishable", "unknown"]


@dataclass(frozen=True)
class Estimate:
    """The median of some values of one quantity and its 95% interval."""

    values: tuple[float, ...]
    quantity: Quantity = "value"
    level: float = _LEVEL
    """How often the interval is to hold the truth: more where several are to hold it together."""

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
        """None with fewer than `MIN_REPEATS` values."""
        return self._interval[0]

    @property
    def high(self) -> float | None:
        return self._interval[1]

    @property
    def mean(self) -> float:
        """Of rates the harmonic mean, of ratios the geometric one, else the arithmetic one (Hoefler & Belli, SC'15,
        rules 3 and 4).
        """
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
        """The sample's standard deviation; None of one value."""
        return _deviation(self.values) if self.n > 1 else None

    @property
    def _is_positive(self) -> bool:
        return self.quantity in ("rate", "amount", "ratio") and min(self.values) > 0

    @cached_property
    def _interval(self) -> tuple[float, float] | tuple[None, None]:
        # Worked out when it is asked for: of most measures only the median is shown.
        if self.n < MIN_REPEATS:
            return None, None
        if self.values.count(self.values[0]) == self.n:
            return self.values[0], self.values[0]  # as they stand, without what rounding a logarithm adds
        if self.n >= MIN_PERCENTILE:
            return _percentile_interval(self.values, self.level)
        values = [math.log(value) for value in self.values] if self._is_positive else self.values
        middle, reach = statistics.median(values), _reach(self.n, self.level) * _deviation(values)
        low, high = middle - reach, middle + reach
        if self._is_positive:
            return math.exp(low), _exp(high)
        # One that is zero has no logarithm, and less than nothing there is not.
        low = low if self.quantity == "value" else max(low, 0.0)
        return low, min(high, 1.0) if self.quantity == "share" else high


@dataclass(frozen=True)
class Interval:
    """A number and the interval around it, by other means than an `Estimate`'s."""

    centre: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """How one trial's rate relates to another's."""

    ratio: Estimate | Interval
    verdict: Verdict
    """`faster` or `slower` where the interval leaves 1 out, `unknown` where there is no interval."""


def estimate(values: Sequence[float], quantity: Quantity = "value", *, level: float = _LEVEL) -> Estimate:
    """The median of one value or more, with an interval from `MIN_REPEATS` on; equal values give equal intervals."""
    return Estimate(tuple(map(float, values)), quantity, level)


def bonferroni_level(count: int) -> float:
    """How often each of several intervals is to hold the truth, for all of them to hold it 95 times in 100
    (Bonferroni).
    """
    return 1 - (1 - _LEVEL) / max(count, 1)


def difference(values: Mapping[int, float], base: Mapping[int, float], *, level: float = _LEVEL) -> Estimate | None:
    """How much more one trial has than another, paired by block; None where they have no block in common."""
    blocks = sorted(values.keys() & base.keys())
    return estimate([values[block] - base[block] for block in blocks], level=level) if blocks else None


def compare(rates: Mapping[int, float], base: Mapping[int, float], *, level: float = _LEVEL) -> Comparison | None:
    """The ratio of two trials' rates, paired by block; None where they have no block in common.

    Args:
        rates: block -> rate (more is faster).
        base: the same of the trial that is compared against.
        level: how often the interval is to hold the truth.
    """
    blocks = sorted(rates.keys() & base.keys())
    if not blocks:
        return None
    ratio = estimate([rates[block] / base[block] for block in blocks], "ratio", level=level)
    return Comparison(ratio, _verdict(ratio))


def compare_apart(rates: Sequence[float], base: Sequence[float], *, level: float = _LEVEL) -> Comparison:
    """The ratio of the geometric means of two trials' rates that have no blocks in common, with Welch's interval.

    Args:
        rates: rates of one trial (more is faster), each above 0.
        base: rates of the trial that is compared against.
        level: how often the interval is to hold the truth.
    """
    one, other = np.log(rates), np.log(base)
    centre = float(np.exp(one.mean() - other.mean()))
    if min(len(one), len(other)) < MIN_REPEATS:
        return Comparison(Interval(centre, None, None), "unknown")
    if np.ptp(one) == 0 and np.ptp(other) == 0:
        ratio = Interval(centre, centre, centre)
    else:
        from scipy.special import stdtrit

        # By hand: scipy.stats.ttest_ind warns of values that are equal on one side alone, as a GPU's memory is.
        parts = [side.var(ddof=1) / len(side) for side in (one, other)]
        degrees = sum(parts) ** 2 / sum(
            part**2 / (len(side) - 1) for part, side in zip(parts, (one, other), strict=True)
        )
        reach = float(stdtrit(degrees, 0.5 + level / 2)) * math.sqrt(sum(parts))
        ratio = Interval(centre, centre * math.exp(-reach), centre * _exp(reach))
    return Comparison(ratio, _verdict(ratio))


def _verdict(ratio: Estimate | Interval) -> Verdict:
    if ratio.low is None or ratio.high is None:
        return "unknown"
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "indistinguishable"


def _exp(value: float) -> float:
    """Three values that differ by orders of magnitude reach beyond all numbers."""
    return math.exp(value) if value < 700 else math.inf


def _deviation(values: Sequence[float]) -> float:
    """The sample's standard deviation; `statistics.stdev` goes by fractions, and takes a hundred times as long."""
    try:
        mean = math.fsum(values) / len(values)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    except OverflowError:
        return math.inf


@cache
def _reach(count: int, level: float) -> float:
    """How many standard deviations of the sample its median is at most away from the truth, so often, for so many
    normally distributed values; neither their mean nor their spread matters. Beyond what the draws resolve it grows as
    Student's t does.
    """
    if level <= _RESOLVED:
        return float(np.quantile(_away(count), level))
    from scipy.special import stdtrit

    tails = (stdtrit(count - 1, 0.5 + each / 2) for each in (level, _RESOLVED))
    return float(np.quantile(_away(count), _RESOLVED) * next(tails) / next(tails))


@cache
def _away(count: int) -> NDArray[np.float64]:
    samples = np.random.default_rng(0).standard_normal((_SHAPE_DRAWS, count))
    away: NDArray[np.float64] = np.abs(np.median(samples, axis=1)) / samples.std(axis=1, ddof=1)
    return away


def _percentile_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    ordered = np.sort(values)
    middles, counts = _middles(len(values))
    medians = ordered[middles].mean(axis=1)
    order = np.argsort(medians)
    reached = np.cumsum(counts[order])
    below, above = (share * _DRAWS for share in _shares(len(values), level))
    last = len(order) - 1
    low, high = np.searchsorted(reached, below), min(int(np.searchsorted(reached, above, side="right")), last)
    return float(medians[order[low]]), float(medians[order[high]])


@cache
def _middles(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of so many sorted values the median of a draw with replacement is the mean of, and how many draws have it
    so; the same for equal counts. Drawing places rather than values takes a hundredth of the time.
    """
    half = np.random.default_rng(0).integers(0, count, (_DRAWS // 2, count))
    # Each draw and its mirror image: what the values are like above and below is then all that makes a difference.
    draws = np.sort(np.concatenate([half, count - 1 - half]), axis=1)
    middles, counts = np.unique(draws[:, [(count - 1) // 2, count // 2]], axis=0, return_counts=True)
    return middles, counts


@cache
def _shares(count: int, level: float) -> tuple[float, float]:
    """Which shares of the draws' medians lie below the ends of the interval."""
    from scipy.special import ndtr, stdtrit

    share = float(ndtr(math.sqrt(count / (count - 1)) * stdtrit(count - 1, (1 - level) / 2)))
    return share, 1 - share
