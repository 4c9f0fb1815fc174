"""How the trials of a sweep compare: one model of all runs, from which every ratio, difference and interval follows.

A run's value, or the logarithm of a rate, a time or a size, is modelled as trial + block + noise. Runs of one block
are near in time, so what the machine does at that time shifts all of them and leaves their differences as they are
(randomized block design: Montgomery, Design and Analysis of Experiments, chapter 4).

Two trials are compared by the mean of their differences in the blocks that have both. Its interval is of 95% for all
pairs of trials together, since the pair that is reported is often picked for being the fastest (Tukey's studentized
range, `scipy.stats.studentized_range`). An answer that judges by several measures has a model of each, among which its
errors are spread: all of its verdicts hold together in 95 of 100 sweeps.
Below `MIN_OWN_VARIANCE` blocks the variance is that of all trials, or of the two if theirs is larger: three differences
say nearly nothing of their spread. From there on it is that of the two, since trials differ in their noise: a short
run from a long one, two ranks from one. Each pair then has its separate standard error, so the family is held together
by Sidak's level for Student's t: Tukey's range, with 28 standard errors of 8 blocks, would err in 11 of 100 sweeps.
Where few blocks already show that the noise differs (Bartlett's test), an interval is at least
that of the two trials' separate variances, with the degrees of freedom of Welch and Satterthwaite.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Estimate, are_same, exponential
from dmls_ray.analysis.stats.looks import Looks, critical_value

MIN_OWN_VARIANCE = 8
"""Blocks from which on the interval of a pair is made of its own differences alone."""

_UNEQUAL = 0.2
"""Level of the test for unequal noise. Few blocks show it badly, and it is worse to miss it than to widen intervals."""

_ROUNDING = 1e-12
"""Relative rounding errors of logarithms of equal ratios."""
_PASSES = 100
_CONVERGED = 1e-12


@dataclass(frozen=True)
class _Noise:
    """How runs of one trial differ, beyond what is common to a block."""

    variance: float
    """Over all trials; of one run."""
    degrees: int
    """Of freedom, of this variance."""
    by_trial: NDArray[np.float64] | None
    """The variance of each trial, nan of those with one run; None where nothing shows that they differ."""
    degrees_by_trial: NDArray[np.int_]


def _noise_of(values: NDArray[np.float64]) -> _Noise:
    """The noise of trials.

    Args:
        values: of shape (trials, blocks); nan where a trial has no run.
    """
    known = ~np.isnan(values)
    residuals = np.where(known, values, 0.0)
    runs, trials = known.sum(axis=0), known.sum(axis=1)
    for _ in range(_PASSES):  # one pass where every block has every trial
        before = residuals
        residuals = residuals - np.where(known, (residuals.sum(axis=1) / np.maximum(trials, 1))[:, None], 0.0)
        residuals = residuals - np.where(known, residuals.sum(axis=0) / np.maximum(runs, 1), 0.0)
        if np.abs(residuals - before).max(initial=0.0) <= _CONVERGED * np.abs(values[known]).max(initial=1.0):
            break
    degrees = max(int(known.sum()) - len(trials) - len(runs) + _count_parts(known), 1)
    residuals[np.abs(residuals) <= _ROUNDING * np.abs(values[known]).max(initial=0.0)] = 0.0
    # A run that is alone in its block says nothing of noise. The mean of a block takes 1 / runs of a run's noise
    # out of its residual.
    shared = known & (runs > 1)
    squares = residuals**2 * np.where(runs > 1, runs / np.maximum(runs - 1, 1), 0.0)
    degrees_by_trial = shared.sum(axis=1) - 1
    by_trial = None
    if _is_unequal([row[is_shared] for row, is_shared in zip(residuals, shared, strict=True)]):
        variances = squares.sum(axis=1) / np.maximum(degrees_by_trial, 1)
        by_trial = np.where(degrees_by_trial > 0, variances, np.nan)
    return _Noise(float((residuals**2).sum()) / degrees, degrees, by_trial, degrees_by_trial)


def _is_unequal(residuals: Sequence[NDArray[np.float64]]) -> bool:
    """Whether the noise of some trials is beyond that of others, by Bartlett's test."""
    from scipy.special import chdtrc

    rows = [row for row in residuals if len(row) > 1]
    if len(rows) < 2 or not any(row.any() for row in rows):
        return False
    # By hand: `scipy.stats.bartlett` takes a millisecond for a hundred multiplications, and there are many models.
    degrees = np.array([len(row) - 1 for row in rows])
    variances = np.array([row.var(ddof=1) for row in rows])
    total = degrees.sum()
    with np.errstate(divide="ignore"):  # a trial without noise among others that have some
        excess = total * np.log((degrees * variances).sum() / total) - (degrees * np.log(variances)).sum()
    spread = excess / (1 + ((1 / degrees).sum() - 1 / total) / (3 * (len(rows) - 1)))
    return float(chdtrc(len(rows) - 1, max(spread, 0.0))) < _UNEQUAL


def _count_parts(known: NDArray[np.bool_]) -> int:
    """The number of parts of a design that have no block in common."""
    if known.all():
        return 1
    from scipy.sparse import bmat, csr_array
    from scipy.sparse.csgraph import connected_components

    design = csr_array(known)
    return int(connected_components(bmat([[None, design], [design.T, None]]), directed=False)[0])


class Contrast(Estimate, frozen=True):
    """A trial against another one: the ratio or the difference, with its interval, by the blocks that have both."""

    half_width: float | None
    """Half of the interval: of the logarithm of a ratio, or of the difference."""
    half_width_after: Callable[..., float] | None = None
    """What it would be after another number of blocks, if the noise stays as it is; as `_half_width_after`."""
    is_once: bool = False
    """Whether its repeats repeat the same run, so that no further one says more, and there is no interval."""
    is_equal: bool = False
    """Whether the two trials have the same value in every block."""

    def narrowed(self, half_width: float, *, is_ratio: bool) -> Contrast:
        """With another half-width, if that is the smaller one."""
        if self.half_width is None or half_width >= self.half_width:
            return self
        low, high = self.centre - half_width, self.centre + half_width
        if is_ratio:
            low, high = self.centre / math.exp(half_width), self.centre * math.exp(half_width)
        least, most = self.ends
        return Contrast(self.centre, max(low, least), min(high, most), self.n, half_width)


@dataclass(frozen=True, eq=False)
class BlockModel:
    """The values of some trials, block by block."""

    values: Mapping[str, Mapping[Any, float]]
    """Trial -> block -> value; above 0 if `is_ratio`. A block holds what may be compared: one repeat in one
    environment."""
    _: KW_ONLY
    is_ratio: bool
    """Whether trials are compared by ratios rather than differences."""
    resolution: float = 0.0
    """The smallest step of the values, as 1/n of a share of n samples; 0 where they have none. Their spread counts as
    half of it at least."""
    is_exact: bool = False
    """Whether the value is the same in every repeat, so that equal values have an interval from one block on."""
    looks: Looks = "none"
    """How the number of blocks came about."""
    limit: float = math.inf
    """The largest possible difference of two values; no interval goes beyond it."""
    once: Collection[str] = ()
    """Trials whose repeats repeat the same run: between equal values of theirs there is no interval."""
    families: int = 1
    """How many models share the errors of an answer, of which this one may make its part."""

    @cached_property
    def _places(self) -> dict[str, int]:
        return {trial: place for place, trial in enumerate(self.values)}

    @cached_property
    def _measured(self) -> NDArray[np.float64]:
        """The values, of shape (trials, blocks); nan where a trial has no run."""
        blocks = dict.fromkeys(itertools.chain.from_iterable(self.values.values()))
        rows = [[by_block.get(block, np.nan) for block in blocks] for by_block in self.values.values()]
        return np.array(rows, dtype=float).reshape(len(rows), len(blocks))

    @cached_property
    def _scaled(self) -> NDArray[np.float64]:
        """The values, or their logarithms if `is_ratio`."""
        if self.is_ratio:
            return np.log(self._measured)
        return self._measured

    def against(self, trial: str, base: str) -> Contrast | None:
        """Return a trial's value divided by that of a base, or minus it; None without a block that has both, and
        without ends below `MIN_REPEATS` blocks.
        """
        return self.combined({trial: 1.0, base: -1.0})

    def combined(self, weights: Mapping[str, float]) -> Contrast | None:
        """Return the sum of weight x value over some trials; None without a block that has all of them.

        Of ratios, the product of value ** weight. Intervals of all such contrasts hold together with those of all
        pairs (Tukey's method for contrasts: Montgomery, section 3.5).

        Args:
            weights: trial -> weight; their sum is 0. With 1 and -1, one trial against another one.
        """
        if not weights.keys() <= self.values.keys():
            return None
        factors = np.array(list(weights.values()))
        rows = [self._places[trial] for trial in weights]
        both = ~np.isnan(self._scaled[rows]).any(axis=0)
        differences, count = factors @ self._scaled[rows][:, both], int(both.sum())
        if not count:
            return None
        middle = float(differences.mean())
        centre = self._shown(middle)
        if self.is_ratio and factors.tolist() == [1.0, -1.0]:
            # Exactly, without rounding errors of logarithms, where all ratios are equal.
            with np.errstate(over="ignore", invalid="ignore"):  # a record of others may have any number
                ratios = self._measured[rows[0], both] / self._measured[rows[1], both]
                if np.ptp(ratios) == 0:
                    centre = float(ratios[0])
        is_equal = len(rows) == 2 and not differences.any()
        unknown = Contrast(centre, None, None, count, None, is_equal=is_equal)
        if weights.keys() <= set(self.once) and all(are_same(row[both]) for row in self._measured[rows]):
            return structs.replace(unknown, is_once=True)
        weights_of_all = np.zeros(len(self.values))
        weights_of_all[rows] = factors
        half_width = self._half_width(differences, weights_of_all)
        if half_width is None:
            return unknown
        if not half_width:
            return Contrast(centre, centre, centre, count, 0.0)
        low, high = middle - half_width, middle + half_width
        if not self.is_ratio:
            limit = self.limit * float(np.abs(factors).sum()) / 2
            low, high = max(low, -limit), min(high, limit)
        after = partial(self._half_width_after, differences, weights_of_all)
        return Contrast(centre, self._shown(low), self._shown(high), count, half_width, after, is_equal=is_equal)

    def _half_width(self, differences: NDArray[np.float64], weights: NDArray[np.float64]) -> float | None:
        """Half the width of the interval of a contrast.

        Args:
            differences: of shape (blocks,), the contrast in each block that has all its trials.
            weights: of shape (trials,), those of the contrast; 0 of trials that are not in it.
        """
        count = len(differences)
        is_equal = bool(np.ptp(differences) <= _ROUNDING * np.abs(differences).max())
        if count < MIN_REPEATS:
            return 0.0 if is_equal and self.is_exact else None
        own = 0.0 if is_equal else float(differences.var(ddof=1))
        squares = float((weights**2).sum())  # 2 of a pair
        least = squares * self.resolution**2 / 8
        of_pairs = (np.abs(weights).sum() / 2) ** 2 / (squares / 2)  # 1 of a pair, more of others

        def half_width(variance: float, degrees: float, *, of_pair_alone: bool) -> float:
            critical = self._critical_value(degrees, count, self.looks, of_pair_alone=of_pair_alone)
            return critical * math.sqrt(of_pairs * max(variance, least) / count)

        # Two trials that are equal in every block are not as noisy as others are.
        if count >= MIN_OWN_VARIANCE or self.is_exact or not differences.any():
            return half_width(own, count - 1, of_pair_alone=True)
        noise = self._noise
        common = half_width(max(own, squares * noise.variance), noise.degrees, of_pair_alone=False)
        if noise.by_trial is None:
            return common
        shares = (weights**2 * noise.by_trial)[weights != 0]
        variance = float(shares.sum())
        if not variance > 0:  # also where a trial has no variance
            return common
        degrees = variance**2 / float((shares**2 / noise.degrees_by_trial[weights != 0]).sum())
        return max(common, half_width(max(own, variance), round(degrees, 1), of_pair_alone=True))

    def _half_width_after(
        self, differences: NDArray[np.float64], weights: NDArray[np.float64], blocks: int, power: float = 0.5
    ) -> float:
        """The half-width of a contrast that is expected after so many blocks.

        That is also the true contrast that is beyond chance in half of all such sweeps. For another share, `power`, it
        is (c + t) s / sqrt(blocks): s is the deviation of the differences, c the critical value of the interval, and t
        the quantile of Student's distribution at `power` (Montgomery, section 2.4, on the choice of sample size, with
        Student's quantiles for the normal ones, of degrees of freedom that count the blocks of both sweeps).

        Args:
            differences: of shape (blocks so far,), the contrast in each.
            weights: of shape (trials,), those of the contrast.
            blocks: their number.
            power: share of sweeps that show the contrast.
        """
        from scipy.special import stdtrit

        squares = float((weights**2).sum())
        variance = max(float(differences.var(ddof=1)), squares * self.resolution**2 / 8)
        if len(differences) < MIN_OWN_VARIANCE and differences.any():
            variance = max(variance, squares * self._noise.variance)
        looks: Looks = "none" if self.looks == "none" else "last"
        critical = self._critical_value(blocks - 1, blocks, looks, of_pair_alone=True)
        deviation = math.sqrt(variance / blocks)
        if power == 0.5:
            return critical * deviation
        # That of few blocks is too small on average, by 1 - 1/4f of f degrees of freedom, and may be smaller by chance.
        degrees = len(differences) - 1
        quantile = float(stdtrit(1 / (1 / (blocks - 1) + 1 / degrees), power))
        return (critical + quantile) * deviation * (1 + 1 / (4 * degrees))

    def _critical_value(self, degrees: float, blocks: int, looks: Looks, *, of_pair_alone: bool) -> float:
        trials = len(self.values)
        return critical_value(trials, degrees, blocks, looks, of_pair_alone=of_pair_alone, families=self.families)

    @cached_property
    def _noise(self) -> _Noise:
        return _noise_of(self._scaled)

    def _shown(self, value: float) -> float:
        return exponential(value) if self.is_ratio else value


def is_decided(contrast: Contrast | None, *, null: float, precision: float, equivalent: float) -> bool:
    """Whether more repeats of a comparison have no use.

    Args:
        contrast: the comparison.
        null: the value that means no difference: 1 of ratios, 0 of differences.
        precision: half-width that is narrow enough: 0.05 for 5% of a ratio, or for 0.05 of a difference.
        equivalent: difference that counts as none: 0.02 for 2% of a ratio, or for 0.02 of a difference.

    Returns:
        Whether the interval excludes `null`, or lies within `equivalent` around it, or is narrow enough.
    """
    if contrast is None or contrast.half_width is None:
        return False
    low, high = contrast.ends
    if low > null or high < null:
        return True
    least, most = -equivalent, equivalent
    if null:
        precision = math.log1p(precision)
        least, most = 1 / (1 + equivalent), 1 + equivalent
    is_equivalent = least < low and high < most
    return is_equivalent or contrast.half_width <= precision


def is_rough(contrast: Contrast, *, null: float, precision: float) -> bool:
    """Whether a comparison is beyond chance and yet hardly says by how much: `2.1 [1.1, 4.1]`, not `2.1 [1.7, 2.6]`.

    Half of its interval is more than half of the difference, and more than what is narrow enough.

    Args:
        contrast: the comparison.
        null: the value that means no difference: 1 of ratios, 0 of differences.
        precision: half-width that is narrow enough, as in `is_decided`.
    """
    low, high = contrast.ends
    if contrast.half_width is None or low <= null <= high:
        return False
    size = abs(contrast.centre)
    if null:
        precision, size = math.log1p(precision), abs(math.log(contrast.centre))
    return contrast.half_width > max(precision, size / 2)
