"""Whether values refute a line or a curve that was fitted to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmls_ray.analysis.stats.intervals import MIN_REPEATS

_ROUNDING = 1e-9
"""Residuals of logarithms below this are rounding errors."""


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
    residuals = np.where(np.abs(residuals) < _ROUNDING, 0.0, residuals)
    if not residuals.any():
        return 1.0
    covariance = np.cov(residuals, rowvar=False)
    variance = float(np.trace(covariance))
    if not variance > 0:
        return 0.0
    means = residuals.mean(axis=0)
    degrees = variance**2 / float((covariance**2).sum())
    return float(f.sf(count * float(means @ means) / variance, degrees, (count - 1) * degrees))
