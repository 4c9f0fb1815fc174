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
"""Standard deviations from 0 beyond which nothing changes."""


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Mean of one value or more, with Student's interval from `MIN_REPEATS` on."""
    centre = statistics.fmean(values)
    if len(values) < MIN_REPEATS:
        return Interval(centre, None, None)
    # Equal values have no spread, and none by rounding either.
    spread = 0.0 if min(values) == max(values) else statistics.stdev(values)
    half = _quantile(0.5 + level / 2, len(values) - 1) * spread / math.sqrt(len(values))
    return Interval(centre, centre - half, centre + half)


def paired(values: Mapping[Block, float], base: Mapping[Block, float]) -> list[float]:
    """How much more one has than the other in each block that both have."""
    return [values[block] - base[block] for block in values if block in base]


def logarithm_of(ratio: Estimate | Interval) -> Interval:
    """The difference of logarithms that a ratio and its interval stand for."""
    low, high = (end if end is None else math.log(end) if end > 0 else -math.inf for end in (ratio.low, ratio.high))
    return Interval(math.log(ratio.centre), low, high)


def ratio_of(interval: Interval) -> Interval:
    """The ratio that an interval of a difference of logarithms stands for."""
    low, high = (None if end is None else math.exp(min(end, 700.0)) for end in (interval.low, interval.high))
    return Interval(math.exp(interval.centre), low, high)


def repeats_to_tell(differences: Sequence[float], level: float, most: int) -> int | None:
    """How many repeats would leave 0 out of the interval of an `Estimate` 4 times in 5, if the differences are normally
    distributed with the mean and the spread that these have.

    Args:
        differences: paired differences, at least `MIN_REPEATS`.
        level: of the interval that is to leave 0 out.
        most: where to give up; then the answer is None.
    """
    mean, spread = abs(statistics.fmean(differences)), statistics.stdev(differences)
    if mean == 0:
        return None
    # In steps of a tenth, downwards: many trials share what is worked out, and none is promised too much.
    return _repeats_to_tell(math.floor(10 * min(mean / spread, _FAR)) / 10 if spread else _FAR, level, most)


@cache
def _repeats_to_tell(away: float, level: float, most: int) -> int | None:
    """The same of a mean that is so many standard deviations away from 0."""
    counts = range(MIN_REPEATS, most + 1)
    place = bisect.bisect_left(counts, _POWER, key=lambda count: _power(away, level, count))
    return counts[place] if place < len(counts) else None


def _power(away: float, level: float, count: int) -> float:
    """How often the interval of so many values leaves 0 out."""
    draws = np.random.default_rng(0).normal(away, 1, (_DRAWS, count))
    lows = [estimate(draw, level=level).low for draw in draws.tolist()]
    return sum(low is not None and low > 0 for low in lows) / _DRAWS


def _quantile(probability: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))
