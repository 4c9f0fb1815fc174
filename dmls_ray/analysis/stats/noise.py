"""How much runs of one trial vary, beyond what is common to all runs of a block; and whether values refute a curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmls_ray.analysis.stats.intervals import MIN_REPEATS

_UNEQUAL = 0.2
"""Level of the test for unequal noise. Few blocks show it badly, and it is worse to miss it than to widen intervals."""

ROUNDING = 1e-12
"""Relative rounding errors of logarithms of equal ratios."""
_PASSES = 100
_CONVERGED = 1e-12

_ROUNDING_OF_RESIDUALS = 1e-9
"""Residuals of logarithms below this are rounding errors."""


@dataclass(frozen=True)
class Noise:
    """How runs of one trial differ, beyond what is common to a block."""

    variance: float
    """Over all trials; of one run."""
    degrees: int
    """Of freedom, of this variance."""
    by_trial: NDArray[np.float64] | None
    """The variance of each trial, nan of those with one run; None where nothing shows that they differ."""
    degrees_by_trial: NDArray[np.int_]


def noise_of(values: NDArray[np.float64]) -> Noise:
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
    residuals[np.abs(residuals) <= ROUNDING * np.abs(values[known]).max(initial=0.0)] = 0.0
    # A run that is alone in its block says nothing of noise. The mean of a block takes 1 / runs of a run's noise
    # out of its residual.
    shared = known & (runs > 1)
    squares = residuals**2 * np.where(runs > 1, runs / np.maximum(runs - 1, 1), 0.0)
    degrees_by_trial = shared.sum(axis=1) - 1
    by_trial = None
    if _is_unequal([row[is_shared] for row, is_shared in zip(residuals, shared, strict=True)]):
        variances = squares.sum(axis=1) / np.maximum(degrees_by_trial, 1)
        by_trial = np.where(degrees_by_trial > 0, variances, np.nan)
    return Noise(float((residuals**2).sum()) / degrees, degrees, by_trial, degrees_by_trial)


def _is_unequal(residuals: Sequence[NDArray[np.float64]]) -> bool:
    """Whether the noise of some trials is beyond that of others, by Bartlett's test."""
    from scipy.stats import bartlett

    rows = [row for row in residuals if len(row) > 1]
    if len(rows) < 2 or not any(row.any() for row in rows):
        return False
    with np.errstate(divide="ignore"):  # a trial without noise among others that have some
        return float(bartlett(*rows).pvalue) < _UNEQUAL


def _count_parts(known: NDArray[np.bool_]) -> int:
    """The number of parts of a design that have no block in common."""
    if known.all():
        return 1
    from scipy.sparse import bmat, csr_array
    from scipy.sparse.csgraph import connected_components

    design = csr_array(known)
    return int(connected_components(bmat([[None, design], [design.T, None]]), directed=False)[0])


def lack_of_fit(residuals: NDArray[np.float64]) -> float | None:
    """Return how often chance alone makes residuals as large as these, if the curve is the true one (a p-value).

    Repeated-measures analysis of variance of the residuals, with the degrees of freedom of Greenhouse and Geisser
    (Psychometrika 24, 1959), since some points vary more than others.

    Args:
        residuals: of shape (blocks, points): what each block has beyond a curve that was fitted to its points, which
            has fewer parameters than points.

    Returns:
        None with too few blocks to test it.
    """
    from scipy.stats import f

    count = len(residuals)
    if count < MIN_REPEATS:
        return None
    residuals = np.where(np.abs(residuals) < _ROUNDING_OF_RESIDUALS, 0.0, residuals)
    if not residuals.any():
        return 1.0
    covariance = np.cov(residuals, rowvar=False)
    variance = float(np.trace(covariance))
    if not variance > 0:
        return 0.0
    means = residuals.mean(axis=0)
    degrees = variance**2 / float((covariance**2).sum())
    return float(f.sf(count * float(means @ means) / variance, degrees, (count - 1) * degrees))
