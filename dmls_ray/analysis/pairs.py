"""Intervals of paired values at any level, for claims about several configurations at once."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TypeVar

from dmls_ray.analysis.stats import MIN_REPEATS, Interval

Block = TypeVar("Block", int, str)


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


def logarithms(values: Mapping[Block, float]) -> dict[Block, float]:
    """Of those above 0, whose differences are ratios."""
    return {block: math.log(value) for block, value in values.items() if value > 0}


def ratio_of(interval: Interval) -> Interval:
    """The ratio that an interval of a difference of logarithms stands for."""
    low, high = (None if end is None else math.exp(min(end, 700.0)) for end in (interval.low, interval.high))
    return Interval(math.exp(interval.centre), low, high)


def repeats_to_tell(differences: Sequence[float], level: float, most: int, power: float = 0.8) -> int | None:
    """How many repeats would tell a mean difference from none, if it and its spread are what these values say.

    Args:
        differences: paired differences, at least `MIN_REPEATS`.
        level: of the interval that is to leave 0 out.
        most: where to give up; then the answer is None.
        power: how likely it is to be left out.
    """
    from scipy.special import nctdtr

    mean, spread = abs(statistics.fmean(differences)), statistics.stdev(differences)
    if mean == 0:
        return None
    for count in range(MIN_REPEATS, most + 1):
        # Student's t of a mean that is not 0 has the noncentral distribution.
        away = mean / spread * math.sqrt(count) if spread else math.inf
        if away > 30 or 1 - nctdtr(count - 1, away, _quantile(0.5 + level / 2, count - 1)) >= power:
            return count
    return None


def _quantile(probability: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))
