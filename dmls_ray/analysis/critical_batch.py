"""How many steps, and how long, training needs to a target against the global batch, and where larger batches stop to
save steps.

Each batch is judged at its best learning rate (Shallue et al., JMLR 2019, arXiv 1811.03600). With enough repeats, the
first half of them chooses it and the others are reported, since the best of several looks better than it is. Steps to
a target follow S = S_min (1 + B_crit / B), where B_crit is the critical batch: there twice the fewest steps and twice
the fewest samples are needed (McCandlish et al., arXiv 1812.06162, equation 2.11).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmls_ray.analysis.stats.formatting import GENERIC, format_interval
from dmls_ray.analysis.stats.intervals import Estimate, Interval, estimate
from dmls_ray.analysis.table.axis_groups import count_values
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord

MIN_SPLIT = 4
"""Repeats from which on the first half chooses the learning rate and the others are reported."""
FEWEST_BATCHES = 4
"""The curve has two parameters; one batch more says how well it fits, and another how sure that is."""
_TUNED = "lr"


@dataclass(frozen=True)
class BatchPoint:
    """One global batch at the learning rate that needs fewest steps with it."""

    batch: int
    row: Row
    """The trial with that learning rate."""
    steps: Estimate | None
    """Optimizer steps to the target, over the runs that are reported; None if none of them reached it."""
    seconds: Estimate | None
    """Seconds from assignment to the target."""
    reached: int
    runs: int
    """Runs that are reported."""
    is_at_edge: bool
    """Whether the best learning rate is the least or the largest that was tried with this batch."""

    @property
    def is_censored(self) -> bool:
        """Whether a run did not reach the target, so that the steps of the others say too little."""
        return self.reached < self.runs


@dataclass(frozen=True)
class CriticalBatch:
    """Steps to a target against the global batch."""

    target: float
    points: Sequence[BatchPoint]
    is_split: bool
    """Whether other runs chose the learning rates than those that are reported."""
    critical: Interval | None
    """The critical batch, in samples, with a 95% interval; None with too few batches that reached the target."""
    fewest_steps: float | None
    """Steps that no batch, however large, goes below, by the curve."""

    def curve(self, batch: float) -> float | None:
        """Steps to the target by the curve."""
        if self.critical is None or self.fewest_steps is None:
            return None
        return self.fewest_steps * (1 + self.critical.centre / batch)

    @property
    def fastest(self) -> BatchPoint | None:
        """The batch that reaches the target in the least time, of those of which all runs reach it."""
        known = [point for point in self.points if point.seconds is not None and not point.is_censored]
        return min(known, key=lambda point: point.seconds.centre if point.seconds else math.inf, default=None)


def critical_batch(table: Table) -> CriticalBatch | None:
    """The steps to the target of each global batch at its best learning rate.

    Returns:
        None unless all trials have one target accuracy and differ in the global batch, and in the learning rate alone
        besides.
    """
    rows = [row for row in table.rows if row.timed and row.factors.get("global_batch")]
    targets = {row.records[0].config.get("target_accuracy") for row in rows}
    others = [name for name in table.varied if name not in ("global_batch", "batch_per_rank", _TUNED)]
    if len(targets) != 1 or None in targets or count_values(rows, "global_batch") < 2:
        return None
    if any(count_values(rows, name) > 1 for name in others):
        return None
    target = float(next(iter(targets)) or 0.0)
    by_batch: dict[int, list[Row]] = {}
    for row in rows:
        by_batch.setdefault(row.factors["global_batch"], []).append(row)
    repeats = min(len(row.timed) for row in rows)
    is_split = repeats >= MIN_SPLIT and any(len(group) > 1 for group in by_batch.values())
    points = [_point(batch, group, is_split=is_split) for batch, group in sorted(by_batch.items())]
    fitted = _fit([point for point in points if point.steps is not None and not point.is_censored])
    return CriticalBatch(target, points, is_split, *(fitted or (None, None)))


def _point(batch: int, rows: Sequence[Row], *, is_split: bool) -> BatchPoint:
    best = min(rows, key=lambda row: _rank(_choosing(row) if is_split else row.timed))
    rates = sorted(_rate(row) for row in rows)
    runs = [run for run in best.timed if run not in _choosing(best)] if is_split else best.timed
    steps = [float(run.target_steps) for run in runs if run.target_steps]
    seconds = [run.target_s for run in runs if run.target_s]
    return BatchPoint(
        batch=batch,
        row=best,
        steps=estimate(steps, "amount") if steps else None,
        seconds=estimate(seconds, "amount") if seconds else None,
        reached=len(steps),
        runs=len(runs),
        is_at_edge=len(rates) > 2 and _rate(best) in (rates[0], rates[-1]),
    )


def _choosing(row: Row) -> list[RunRecord]:
    """The runs that choose the learning rate: the first half."""
    return sorted(row.timed, key=lambda run: run.repeat)[: len(row.timed) // 2]


def _rank(runs: Sequence[RunRecord]) -> tuple[int, float]:
    """How good runs are: how many did not reach the target, then the mean steps of the others."""
    steps = [run.target_steps for run in runs if run.target_steps]
    return len(runs) - len(steps), sum(map(math.log, steps)) / len(steps) if steps else math.inf


def _rate(row: Row) -> float:
    config = row.records[0].config
    return float(row.factors.get(_TUNED) or config.get(_TUNED) or 0.0)


def _fit(points: Sequence[BatchPoint]) -> tuple[Interval, float] | None:
    """The critical batch and the fewest steps, by least squares of the logarithms of the steps."""
    if len(points) < FEWEST_BATCHES:
        return None
    from scipy.optimize import least_squares
    from scipy.special import stdtrit

    batches = np.array([point.batch for point in points], dtype=float)
    logs = np.log([point.steps.centre for point in points if point.steps is not None])

    def residuals(parameters: np.ndarray) -> np.ndarray:
        return parameters[0] + np.log1p(np.exp(parameters[1]) / batches) - logs

    found = least_squares(residuals, [logs.min(), math.log(float(np.median(batches)))])
    degrees = len(points) - 2
    try:
        covariance = np.linalg.inv(found.jac.T @ found.jac) * 2 * found.cost / degrees
        half_width = float(stdtrit(degrees, 0.975)) * math.sqrt(covariance[1, 1])
    except (np.linalg.LinAlgError, ValueError):
        half_width = math.inf
    low, middle, high = (_exp(found.x[1] + side * half_width) for side in (-1, 0, 1))
    return Interval(middle, low, high), _exp(float(found.x[0]))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def describe_critical(found: CriticalBatch) -> str:
    """The critical batch in words, or why it is not known."""
    if found.critical is None:
        return f"unknown: fewer than {FEWEST_BATCHES} batches reach {found.target:g} in every run"
    batches = [point.batch for point in found.points]
    low, high = found.critical.low or 0.0, found.critical.high or math.inf
    if low > batches[-1]:
        return f"above {batches[-1]}: all batches save steps in proportion"
    if high < batches[0]:
        return f"below {batches[0]}: no batch saves steps in proportion"
    if high > 100 * batches[-1] or low < batches[0] / 100:
        return f"about {GENERIC(round(found.critical.centre))}, known to no factor of 100"
    return format_interval(found.critical, GENERIC)
