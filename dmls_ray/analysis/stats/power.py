"""How many repeats distinguish two trials."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from functools import cache

import numpy as np

from dmls_ray.analysis.stats.intervals import MIN_REPEATS, estimate, is_above

_POWER = 0.8
"""Power of the advised number of repeats."""
_DRAWS = 400
_ROUNDING = 1e-9
_FAR = 100.0
"""Largest effect considered, in standard deviations."""


def repeats_to_tell(differences: Sequence[float], level: float, most: int, resolution: float = 0.0) -> int | None:
    """Return the number of repeats after which the interval of the differences excludes 0 with a power of 80%.

    It assumes normally distributed differences with the mean and the standard deviation of these.

    Args:
        differences: paired differences, at least `MIN_REPEATS`.
        level: confidence level of the interval.
        most: largest number considered; None is returned if it is not enough.
        resolution: the smallest step of the values; no number of repeats distinguishes less.
    """
    mean, spread = abs(statistics.fmean(differences)), max(statistics.stdev(differences), resolution / 2)
    if mean <= resolution * (1 + _ROUNDING):
        return None
    # Rounded down to tenths: trials share cached results, and the advice is never too few repeats.
    effect = math.floor(10 * min(mean / spread, _FAR)) / 10 if spread else _FAR
    counts = range(MIN_REPEATS, most + 1)
    place = bisect.bisect_left(counts, _POWER, key=lambda count: _power(effect, level, count))
    return counts[place] if place < len(counts) else None


@cache
def _power(effect: float, level: float, count: int) -> float:
    """Return how often the interval of `count` values excludes 0, for a mean of `effect` standard deviations."""
    draws = np.random.default_rng(0).normal(effect, 1, (_DRAWS, count))
    return sum(is_above(estimate(draw, level=level), 0) for draw in draws.tolist()) / _DRAWS
