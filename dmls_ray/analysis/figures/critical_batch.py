"""Steps and seconds to a target against the global batch, at the best learning rate of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import Point, dashed_line, series_of
from dmls_ray.analysis.findings.critical import BatchPoint, CriticalBatch, answer_on_critical_batch, critical_batch
from dmls_ray.analysis.stats.formatting import GENERIC, format_interval
from dmls_ray.analysis.stats.intervals import Estimate
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.words import headline_text

_CURVE_POINTS = 33
_CRITICAL = "critical batch"


def chart(table: Table) -> Chart | None:
    """The figure; None unless `critical_batch` has an answer."""
    found = critical_batch(table)
    if found is None or not any(point.steps for point in found.points):
        return None
    x = Axis("global_batch (samples)", log=True)
    label = f"to a test accuracy of {found.target:g}"
    steps = _measured(found.points, lambda point: point.steps)
    seconds = _measured(found.points, lambda point: point.seconds)
    panels = [
        Panel(x=x, y=Axis(f"optimizer steps {label}", log=True), series=[*steps, *_laws(found)]),
        Panel(x=x, y=Axis(f"seconds {label}", log=True), series=seconds),
    ]
    return Chart(name="critical_batch", title="Steps and time to the target", panels=panels, notes=_notes(found))


def _measured(points: Sequence[BatchPoint], value_of: Callable[[BatchPoint], Estimate | None]) -> list[Series]:
    """The batches of which all runs reached the target, with the mean, and the others."""
    known, missed = [], []
    for point in points:
        batch, text = float(point.batch), _text(point)
        run_ids = tuple(run.run_id for run in point.runs)
        value = value_of(point)
        if value is None:
            missed.append(Point(batch, None, runs=run_ids, text=text))
        else:
            known.append(Point(batch, value.centre, value.low, value.high, run_ids, text))
    return [
        *series_of("best learning rate", known, connected=True),
        *series_of("not reached by all runs", missed, kind="cross"),
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
    notes.append(headline_text(answer_on_critical_batch(found)))
    if found.noise_scale is not None:
        notes.append(f"Gradient noise scale: {format_interval(found.noise_scale, GENERIC)} samples.")
    return tuple(notes)


def _text(point: BatchPoint) -> str:
    rate = point.trial.records[0].config.get("lr")
    known = f"lr {rate:g}, " if isinstance(rate, float) else ""
    return f"{known}{len(point.steps_by_repeat)} of {len(point.runs)} runs"
