"""Intervals of paired values at any level, for claims about several configurations at once."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

import numpy as np

from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Estimate, Interval, estimate

Block = TypeVar("Block", int, str)

_POWER = 0.8
"""Power of the advised number of repeats."""
_DRAWS = 400
_FAR = 100.0
"""Largest effect considered, in standard deviations."""


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Mean of one value or more, with Student's interval from `MIN_REPEATS` on."""
    centre = statistics.fmean(values)
    if len(values) < MIN_REPEATS:
        return Interval(centre, None, None)
    # Exactly 0 for equal values, without rounding errors.
    spread = 0.0 if min(values) == max(values) else statistics.stdev(values)
    half = _quantile(0.5 + level / 2, len(values) - 1) * spread / math.sqrt(len(values))
    return Interval(centre, centre - half, centre + half)


def paired(values: Mapping[Block, float], base: Mapping[Block, float]) -> list[float]:
    """Return values minus base in each common block."""
    return [values[block] - base[block] for block in values if block in base]


def logarithm_of(ratio: Estimate | Interval) -> Interval:
    """Return the logarithm of a ratio and of the ends of its interval."""
    low, high = (end if end is None else math.log(end) if end > 0 else -math.inf for end in (ratio.low, ratio.high))
    return Interval(math.log(ratio.centre), low, high)


def ratio_of(interval: Interval) -> Interval:
    """Return the ratio of an interval of logarithms: the inverse of `logarithm_of`."""
    low, high = (None if end is None else math.exp(min(end, 700.0)) for end in (interval.low, interval.high))
    return Interval(math.exp(interval.centre), low, high)


def repeats_to_tell(differences: Sequence[float], level: float, most: int) -> int | None:
    """Return the number of repeats after which the interval of the differences excludes 0 with a power of 80%.

    It assumes normally distributed differences with the mean and the standard deviation of these.

    Args:
        differences: paired differences, at least `MIN_REPEATS`.
        level: confidence level of the interval.
        most: largest number considered; None is returned if it is not enough.
    """
    mean, spread = abs(statistics.fmean(differences)), statistics.stdev(differences)
    if mean == 0:
        return None
    # Rounded down to tenths: trials share cached results, and the advice is never too few repeats.
    return _repeats_to_tell(math.floor(10 * min(mean / spread, _FAR)) / 10 if spread else _FAR, level, most)


@cache
def _repeats_to_tell(effect: float, level: float, most: int) -> int | None:
    """As `repeats_to_tell`, for a mean of `effect` standard deviations."""
    counts = range(MIN_REPEATS, most + 1)
    place = bisect.bisect_left(counts, _POWER, key=lambda count: _power(effect, level, count))
    return counts[place] if place < len(counts) else None


def _power(effect: float, level: float, count: int) -> float:
    """Return how often the interval of `count` values excludes 0."""
    draws = np.random.default_rng(0).normal(effect, 1, (_DRAWS, count))
    lows = [estimate(draw, level=level).low for draw in draws.tolist()]
    return sum(low is not None and low > 0 for low in lows) / _DRAWS


def _quantile(probability: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))
