"""Steps and seconds to a target against the global batch, at the best learning rate of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dmls_ray.analysis.critical_batch import BatchPoint, CriticalBatch, critical_batch, describe_critical
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import Point, dashed_line, series_of
from dmls_ray.analysis.stats.formatting import GENERIC, format_interval
from dmls_ray.analysis.stats.intervals import Estimate
from dmls_ray.analysis.table.model import Table

_CURVE_POINTS = 33
_MEASURED = "best learning rate"
_CRITICAL = "critical batch"


def chart(table: Table) -> Chart | None:
    """The figure; None unless `critical_batch` has an answer."""
    found = critical_batch(table)
    if found is None or not any(point.steps for point in found.points):
        return None
    x = Axis("global_batch (samples)", log=True)
    label = f"to a test accuracy of {found.target:g}"
    steps = _measured(found.points, lambda point: point.steps, lambda point: point.least_steps)
    seconds = _measured(found.points, lambda point: point.seconds, lambda point: point.least_seconds)
    panels = [
        Panel(x=x, y=Axis(f"optimizer steps {label}", log=True), series=[*steps, *_laws(found)]),
        Panel(x=x, y=Axis(f"seconds {label}", log=True), series=seconds),
    ]
    return Chart(name="critical_batch", title="Steps and time to the target", panels=panels, notes=_notes(found))


def _measured(
    points: Sequence[BatchPoint],
    value_of: Callable[[BatchPoint], Estimate | None],
    least_of: Callable[[BatchPoint], float | None],
) -> list[Series]:
    """The batches of which all runs reached the target, those of which some did, and those of which nothing is known.

    Args:
        points: the batches.
        value_of: a batch's mean, if all runs reached the target.
        least_of: a lower limit of it, if some did not.
    """
    known, limits, never = [], [], []
    for point in points:
        batch, text = float(point.batch), _text(point)
        value, least = value_of(point), least_of(point)
        if value is not None:
            known.append(Point(batch, value.centre, value.low, value.high, point.run_ids, text))
        if least is not None:
            limits.append(Point(batch, least, runs=point.run_ids, text=text))
        if value is None and least is None:
            never.append(Point(batch, None, runs=point.run_ids, text=text))
    same_as = _MEASURED if known else ""
    return [
        *series_of(_MEASURED, known, connected=True),
        *series_of("at least: not all runs reached it", limits, kind="bound", same_as=same_as),
        *series_of("not reached", never, kind="cross"),
    ]


def _laws(found: CriticalBatch) -> list[Series]:
    """Perfect scaling, the fitted curve with the critical batch, and what the gradient noise scale predicts."""
    first, value = next((point, point.steps) for point in found.points if point.steps is not None)
    ends = (float(first.batch), float(found.points[-1].batch))
    ideal = [value.centre * first.batch / batch for batch in ends]
    series = [dashed_line("perfect scaling", ends, ideal)]
    steps = list(ideal)
    for point in found.points:
        if point.steps is not None:
            steps.append(point.steps.centre)
        if point.least_steps is not None:
            steps.append(point.least_steps)
    heights = [min(steps), max(steps)]

    if found.curve is not None:
        places = [ends[0] * (ends[1] / ends[0]) ** (step / (_CURVE_POINTS - 1)) for step in range(_CURVE_POINTS)]
        curve = [found.curve.steps(place) for place in places]
        series.append(dashed_line("S_min (1 + B_crit / B)", places, curve))
        # The axis ends at the measured batches.
        critical = found.curve.critical
        low, high = max(critical.low or 0.0, ends[0]), min(critical.high or math.inf, ends[1])
        if low < high:
            series.append(
                Series(
                    name=f"{_CRITICAL}, 95%", kind="band", x=[low, high], y=[None] * 2, low=[heights[0]] * 2,
                    high=[heights[1]] * 2,
                )
            )  # fmt: skip
        series += _upright(_CRITICAL, critical.centre, ends, heights)
    if found.noise_scale is not None:
        series += _upright("gradient noise scale", found.noise_scale.centre, ends, heights)
    return series


def _upright(name: str, batch: float, ends: tuple[float, float], heights: list[float]) -> list[Series]:
    """An upright line at a batch, if it is one of those that the axis shows."""
    if not ends[0] <= batch <= ends[1]:
        return []
    return [dashed_line(name, [batch] * 2, heights)]


def _notes(found: CriticalBatch) -> tuple[str, ...]:
    notes = ["Each batch at the learning rate that needs fewest steps with it."]
    if any(point.is_censored for point in found.points):
        notes.append(
            "A triangle: not all runs of the batch reached the target, so that its mean is above this limit, at which "
            "they count with the steps of the longest training."
        )
    notes.append(f"Critical batch: {describe_critical(found)}.")
    if found.noise_scale is not None:
        notes.append(f"Gradient noise scale: {format_interval(found.noise_scale, GENERIC)} samples.")
    return tuple(notes)


def _text(point: BatchPoint) -> str:
    rate = point.row.records[0].config.get("lr")
    known = f"lr {rate:g}, " if isinstance(rate, float) else ""
    return f"{known}{point.reached} of {len(point.run_ids)} runs"
