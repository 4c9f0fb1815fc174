"""Laws fitted to measurements, with intervals: speed-ups against ranks, and steps to a target against the batch.

A law is refused where it misses the measurements, or where these are too few. Steps against the batch follow
S = S_min (1 + B_crit / B) (McCandlish et al., arXiv 1812.06162, equation 2.11): at the critical batch B_crit, twice the
fewest steps and twice the fewest samples are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_ray.analysis.stats import intervals

Points = Mapping[int, Mapping[int, float]]
"""world_size -> block -> speed-up against world size 1 without DDP in that block."""

Law = Callable[..., Any]

_NEGLIGIBLE = 0.05
"""Relative deviation of a curve from the measurements that is accepted, however narrow their interval."""

FEWEST_BATCHES = 4
"""The curve of steps has two parameters; one batch more says how well it fits, and another how sure that is."""
_REFUTED = 0.05
"""Level of the test of that curve's fit."""
_ROUNDING = 1e-9
"""Residuals of logarithms below this are rounding errors."""


def amdahl(ranks: float, serial: float) -> float:
    """Return the speed-up of a fixed problem with the fraction `serial` not parallel (Amdahl, AFIPS 1967)."""
    return 1 / (serial + (1 - serial) / ranks)


def universal(ranks: float, contention: float, coherency: float) -> float:
    """Return the speed-up with contention for shared resources and coherency costs between ranks.

    It can fall as ranks are added, and below 1 (Gunther, Guerrilla Capacity Planning, 2007, chapter 4).
    """
    return ranks / (1 + contention * (ranks - 1) + coherency * ranks * (ranks - 1))


@dataclass(frozen=True)
class Fit:
    """A law fitted to the speed-ups of each block separately."""

    name: str
    law: Law
    by_block: Sequence[Sequence[float]]
    """The parameters of the law in each block."""

    def curve(self, world_size: float) -> intervals.Estimate:
        """The mean speed-up at a world size; beyond the largest measured one it is an extrapolation."""
        return intervals.estimate([self.law(world_size, *parameters) for parameters in self.by_block], "ratio")


_LAWS: Mapping[str, tuple[Law, int]] = {"Amdahl's law": (amdahl, 1), "universal scalability law": (universal, 2)}
"""Name -> function of a law, and how many parameters it has."""


def fits(points: Points, *, strong: bool = True) -> list[Fit]:
    """The laws that can be fitted and hold.

    A law needs one world size above 1 more than it has parameters: at world size 1 the speed-up is 1 by definition. A
    law whose curve misses the measured speed-ups does not hold.

    Args:
        points: the measured speed-ups of world sizes above 1.
        strong: whether the problem stays the same as ranks are added (strong scaling); Amdahl's law needs that.
    """
    sizes = sorted(points)
    import pandas as pd

    frame = pd.DataFrame(dict(points)).dropna()  # of shape (blocks that have all world sizes, world sizes)
    found = []
    for name, (law, count) in _LAWS.items():
        if frame.empty or len(sizes) < count + 1 or (law is amdahl and not strong):
            continue
        fit = Fit(name, law, [_fitted(law, count, sizes, frame.loc[block, sizes]) for block in sorted(frame.index)])
        level = intervals.bonferroni_level(len(sizes))
        if not any(_misses(fit, size, frame[size].tolist(), level) for size in sizes):
            found.append(fit)
    return found


def _misses(fit: Fit, size: int, speed_ups: Sequence[float], level: float) -> bool:
    """Whether a curve is far from the speed-ups that the blocks have at a world size, and outside their interval."""
    seen = intervals.estimate(speed_ups, "ratio", level=level)
    predicted = fit.curve(size).centre
    is_far = abs(predicted / seen.centre - 1) > _NEGLIGIBLE
    return is_far and (intervals.is_above(seen, predicted) or intervals.is_below(seen, predicted))


def _fitted(law: Law, count: int, sizes: Sequence[int], speed_ups: Sequence[float]) -> tuple[float, ...]:
    """Return the parameters by least squares of the logarithms of the speed-ups, since noise is proportional.

    They may be slightly below 0, where noise makes ranks faster than the ideal. Cut off at 0, their interval would have
    no width there.
    """
    from scipy.optimize import least_squares  # takes half a second to load

    def residuals(parameters: Sequence[float]) -> NDArray[np.float64]:
        return np.log(law(np.array(sizes), *parameters) / np.array(speed_ups))

    most = max(sizes)
    # Lower bounds that keep the denominator of the law above 0.
    least = [-0.4 / (most - 1), -0.4 / (most * (most - 1))][:count]
    solved = least_squares(residuals, [0.1, 0.01][:count], bounds=(least, [1.0, np.inf][:count]))
    return tuple(solved.x.tolist())


@dataclass(frozen=True)
class StepsCurve:
    """Steps to a target against the batch."""

    critical: intervals.Interval
    """The critical batch, in samples, with a 95% interval."""
    fewest_steps: float
    """Steps that no batch, however large, goes below."""

    def steps(self, batch: float) -> float:
        """Steps to the target with a batch."""
        return self.fewest_steps * (1 + self.critical.centre / batch)


def fit_curve(steps: Mapping[int, float]) -> StepsCurve | None:
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
    degrees = len(steps) - 2
    try:
        covariance = np.linalg.inv(found.jac.T @ found.jac) * 2 * found.cost / degrees
        half_width = float(stdtrit(degrees, 0.975)) * math.sqrt(covariance[1, 1])
    except (np.linalg.LinAlgError, ValueError):
        half_width = math.inf
    fewest, middle = found.x.tolist()
    low, high = intervals.exponential(middle - half_width), intervals.exponential(middle + half_width)
    return StepsCurve(intervals.Interval(intervals.exponential(middle), low, high), intervals.exponential(fewest))


def refuting_batch(
    curve: StepsCurve, steps: Mapping[int, Mapping[int, float]], tolerance: Mapping[int, float]
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
    if beyond[worst] <= 0 or probability >= _REFUTED:
        return None
    return list(steps)[worst]


def lack_of_fit(residuals: NDArray[np.float64]) -> float:
    """Return how often chance alone makes residuals as large as these, if the curve is the true one (a p-value).

    Repeated-measures analysis of variance of the residuals, with the degrees of freedom of Greenhouse and Geisser
    (Psychometrika 24, 1959), since some points vary more than others.

    Args:
        residuals: of shape (`MIN_REPEATS` blocks or more, points): what each block has beyond a curve that was fitted
            to its points, which has fewer parameters than points.
    """
    from scipy.stats import f

    count = len(residuals)
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
