"""Steps to a target against the batch: S = S_min (1 + B_crit / B) (McCandlish et al., arXiv 1812.06162, equation 2.11).

At the critical batch B_crit, twice the fewest steps and twice the fewest samples are needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dmls_ray.analysis.stats.intervals import Interval, exponential
from dmls_ray.analysis.stats.lack_of_fit import lack_of_fit

FEWEST_BATCHES = 4
"""The curve has two parameters; one batch more says how well it fits, and another how sure that is."""
_PARAMETERS = 2
_REFUTED = 0.05
"""Level of the test of the curve's fit."""
_NEGLIGIBLE = 0.05
"""Relative distance of a batch from the curve that is accepted, however sure it is."""


@dataclass(frozen=True)
class Curve:
    """Steps to a target against the batch."""

    critical: Interval
    """The critical batch, in samples, with a 95% interval."""
    fewest_steps: float
    """Steps that no batch, however large, goes below."""

    def steps(self, batch: float) -> float:
        """Steps to the target with a batch."""
        return self.fewest_steps * (1 + self.critical.centre / batch)


def fit_curve(steps: Mapping[int, float]) -> Curve | None:
    """Fit the curve by least squares of the logarithms of the steps; None with fewer than `FEWEST_BATCHES`.

    Args:
        steps: batch -> steps to the target.
    """
    if len(steps) < FEWEST_BATCHES:
        return None
    from scipy.optimize import least_squares
    from scipy.special import stdtrit

    batches, logs = np.array(list(steps), dtype=float), np.log(list(steps.values()))

    def residuals(parameters: np.ndarray) -> np.ndarray:
        return parameters[0] + np.log1p(np.exp(parameters[1]) / batches) - logs

    found = least_squares(residuals, [logs.min(), math.log(float(np.median(batches)))])
    degrees = len(steps) - _PARAMETERS
    try:
        covariance = np.linalg.inv(found.jac.T @ found.jac) * 2 * found.cost / degrees
        half_width = float(stdtrit(degrees, 0.975)) * math.sqrt(covariance[1, 1])
    except (np.linalg.LinAlgError, ValueError):
        half_width = math.inf
    middle = float(found.x[1])
    critical = Interval(exponential(middle), exponential(middle - half_width), exponential(middle + half_width))
    return Curve(critical, exponential(float(found.x[0])))


def refuting_batch(
    curve: Curve, steps: Mapping[int, Mapping[int, float]], tolerance: Mapping[int, float]
) -> int | None:
    """The batch that is farthest from the curve, if the steps of all batches refute it; None otherwise.

    Args:
        curve: fitted to the means of the steps.
        steps: batch -> repeat -> steps to the target, of repeats that all batches have, `MIN_REPEATS` at least.
        tolerance: batch -> distance from the curve that is accepted, in steps.
    """
    batches = np.array(list(steps), dtype=float)
    logs = np.log([list(by_repeat.values()) for by_repeat in steps.values()]).T
    critical = curve.critical.centre
    residuals = logs - np.log(curve.fewest_steps * (1 + critical / batches))
    # Without what a repeat's own curve would follow: the directions in which the two parameters move it.
    moved = np.column_stack([np.ones(len(batches)), critical / (batches + critical)])
    residuals -= residuals @ moved @ np.linalg.pinv(moved)
    accepted = np.array([tolerance[batch] for batch in steps]) / np.exp(logs.mean(axis=0))
    beyond = np.abs(residuals.mean(axis=0)) - np.maximum(_NEGLIGIBLE, accepted)
    probability = lack_of_fit(residuals)
    worst = int(np.argmax(beyond))
    if beyond[worst] <= 0 or probability is None or probability >= _REFUTED:
        return None
    return list(steps)[worst]
