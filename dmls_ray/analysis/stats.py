"""Medians with bootstrap intervals, and comparisons paired by block."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

MIN_REPEATS = 3
"""Fewer values have no interval."""

_DRAWS = 4000

Verdict = Literal["faster", "slower", "indistinguishable", "unknown"]


@dataclass(frozen=True)
class Estimate:
    """A median and its 95% percentile bootstrap interval (Efron & Tibshirani, 1993, chapter 13).

    With n = 3 the interval is close to the range of the values, which holds the true median 3 times in 4.
    """

    values: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.values)

    @cached_property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float | None:
        """None with fewer than `MIN_REPEATS` values."""
        return self._interval[0]

    @property
    def high(self) -> float | None:
        return self._interval[1]

    @cached_property
    def _interval(self) -> tuple[float, float] | tuple[None, None]:
        # Worked out when it is asked for: of most measures only the median is shown.
        if self.n < MIN_REPEATS:
            return None, None
        low, high = np.percentile(np.median(np.asarray(self.values)[_draws(self.n)], axis=1), [2.5, 97.5])
        return float(low), float(high)


@dataclass(frozen=True)
class Comparison:
    """How one trial's rate relates to another's, from their ratio in each block that both have."""

    ratio: Estimate
    verdict: Verdict
    """`faster` or `slower` where the interval leaves 1 out, `unknown` where there is no interval."""


def estimate(values: Sequence[float]) -> Estimate:
    """The median of one value or more, with an interval from `MIN_REPEATS` on; equal values give equal intervals."""
    return Estimate(tuple(map(float, values)))


@cache
def _draws(count: int) -> NDArray[np.int64]:
    """Which of so many values each draw takes, with replacement; the same for equal counts."""
    return np.random.default_rng(0).integers(0, count, (_DRAWS, count))


def difference(values: Mapping[int, float], base: Mapping[int, float]) -> Estimate | None:
    """How much more one trial has than another, paired by block; None where they have no block in common."""
    blocks = sorted(values.keys() & base.keys())
    return estimate([values[block] - base[block] for block in blocks]) if blocks else None


def compare(rates: Mapping[int, float], base: Mapping[int, float]) -> Comparison | None:
    """The ratio of two trials' rates, paired by block; None where they have no block in common.

    Args:
        rates: block -> rate (more is faster).
        base: the same of the trial that is compared against.
    """
    blocks = sorted(rates.keys() & base.keys())
    if not blocks:
        return None
    ratio = estimate([rates[block] / base[block] for block in blocks])
    if ratio.low is None or ratio.high is None:
        return Comparison(ratio, "unknown")
    if ratio.low > 1:
        return Comparison(ratio, "faster")
    return Comparison(ratio, "slower" if ratio.high < 1 else "indistinguishable")
