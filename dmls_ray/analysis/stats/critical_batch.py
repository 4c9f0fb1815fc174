"""The curve S = S_min (1 + B_crit / B) of steps to a target against the batch, and whether steps are on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.stats.lack_of_fit import lack_of_fit

_REFUTED = 0.05
"""Level of the test of the curve's fit."""
_NEGLIGIBLE = 0.05
"""Relative distance of a batch from the curve that is accepted, however sure it is."""


def fit_steps(steps_by_batch: Mapping[int, float]) -> tuple[Interval, float]:
    """The critical batch with its 95% interval, and the fewest steps, by least squares of the logarithms of the steps.

    Args:
        steps_by_batch: batch -> mean steps to the target; more than two.
    """
    from scipy.optimize import least_squares
    from scipy.special import stdtrit

    batches = np.array([*steps_by_batch], dtype=float)
    logs = np.log([*steps_by_batch.values()])

    def residuals(parameters: np.ndarray) -> np.ndarray:
        return parameters[0] + np.log1p(np.exp(parameters[1]) / batches) - logs

    found = least_squares(residuals, [logs.min(), math.log(float(np.median(batches)))])
    degrees = len(batches) - 2
    try:
        covariance = np.linalg.inv(found.jac.T @ found.jac) * 2 * found.cost / degrees
        half_width = float(stdtrit(degrees, 0.975)) * math.sqrt(covariance[1, 1])
    except (np.linalg.LinAlgError, ValueError):
        half_width = math.inf
    low, middle, high = (_exp(found.x[1] + side * half_width) for side in (-1, 0, 1))
    return Interval(middle, low, high), _exp(float(found.x[0]))


def farthest_from_curve(
    batches: Sequence[int],
    steps: Sequence[Sequence[float]],
    accepted_steps: Sequence[float],
    critical: float,
    fewest: float,
) -> tuple[int, float] | None:
    """The index of the batch that is farthest from the curve, and its steps by the curve; None if it is not refuted.

    Args:
        batches: the batches.
        steps: of each repeat, the steps of each batch.
        accepted_steps: of each batch, the distance from the curve that is accepted.
        critical: the critical batch of the curve.
        fewest: its fewest steps.
    """
    sizes = np.array(batches, dtype=float)
    logs = np.log(steps)
    curve = fewest * (1 + critical / sizes)
    # Without what a repeat's own curve would follow: the directions in which the two parameters move it.
    moved = np.column_stack([np.ones(len(sizes)), critical / (sizes + critical)])
    residuals = logs - np.log(curve)
    residuals -= residuals @ moved @ np.linalg.pinv(moved)
    accepted = np.maximum(_NEGLIGIBLE, np.array(accepted_steps) / np.exp(logs.mean(axis=0)))
    beyond = np.abs(residuals.mean(axis=0)) - accepted
    probability = lack_of_fit(residuals)
    worst = int(np.argmax(beyond))
    if beyond[worst] <= 0 or probability is None or probability >= _REFUTED:
        return None
    return worst, float(curve[worst])


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
