"""How many repeats distinguish two trials."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Callable, Sequence

from dmls_ray.analysis.stats.intervals import MIN_REPEATS

_POWER = 0.8
"""Power of the advised number of repeats."""
_ROUNDING = 1e-9


def repeats_to_tell(
    differences: Sequence[float], critical_value: Callable[[float], float], most: int, resolution: float = 0.0
) -> int | None:
    """Return the number of repeats after which the interval of the differences excludes 0 with a power of 80%.

    It assumes normally distributed differences with the mean and the standard deviation of these: then their mean in
    standard errors has a noncentral t distribution.

    Args:
        differences: paired differences, at least `MIN_REPEATS`.
        critical_value: half-width of the interval in standard errors, by its degrees of freedom.
        most: largest number considered; None is returned if it is not enough.
        resolution: the smallest step of the values; no number of repeats distinguishes less.
    """
    mean, spread = abs(statistics.fmean(differences)), max(statistics.stdev(differences), resolution / 2)
    if mean <= resolution * (1 + _ROUNDING):
        return None
    if not spread:
        return MIN_REPEATS
    counts = range(MIN_REPEATS, most + 1)
    place = bisect.bisect_left(
        counts, _POWER, key=lambda count: _power(mean / spread, critical_value(count - 1), count)
    )
    return counts[place] if place < len(counts) else None


def _power(effect: float, critical: float, count: int) -> float:
    """Return how often the interval of `count` differences excludes 0, for a mean of `effect` standard deviations."""
    from scipy.stats import nct

    return float(nct.sf(critical, count - 1, effect * math.sqrt(count)))
