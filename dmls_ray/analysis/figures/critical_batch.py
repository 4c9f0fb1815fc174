"""Steps and seconds to a target against the global batch, at the best learning rate of each."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Point, Series
from dmls_ray.analysis.figures.series import dashed_line, run_ids
from dmls_ray.analysis.findings.critical import BatchPoint, CriticalBatch, answer_on_critical_batch, critical_batch
from dmls_ray.analysis.stats.formatting import GENERIC, format_interval
from dmls_ray.analysis.stats.intervals import Estimate
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.words import headline_text

_CURVE_POINTS = 33


def chart(table: Table) -> Chart | None:
    """The figure; None unless `critical_batch` has an answer."""
    found = critical_batch(table)
    if found is None or not any(point.steps for point in found.points):
        return None
    x = Axis("global_batch (samples)", log=True, ticks=[point.batch for point in found.points])
    label = f"to a test accuracy of {found.target:g}"
    steps = _measured((point, point.steps) for point in found.points)
    seconds = _measured((point, point.seconds) for point in found.points)
    # A band lies under the points.
    with_laws = sorted([*steps, *_laws(found, steps)], key=lambda series: series.kind != "band")
    panels = [
        Panel(x=x, y=Axis(f"optimizer steps {label}", log=True), series=with_laws),
        Panel(x=x, y=Axis(f"seconds {label}", log=True), series=seconds),
    ]
    notes = [
        "Each batch at the learning rate that needs fewest steps with it.",
        headline_text(answer_on_critical_batch(found)),
    ]
    if found.noise_scale is not None:
        notes.append(f"Gradient noise scale: {format_interval(found.noise_scale, GENERIC)} samples.")
    return Chart(name="critical_batch", title="Steps and time to the target", panels=panels, notes=notes)


def _measured(points: Iterable[tuple[BatchPoint, Estimate | None]]) -> list[Series]:
    """The batches of which all runs reached the target, with the mean, and the others."""
    known, missed = [], []
    for point, value in points:
        text = f"{len(point.steps_by_repeat)} of {len(point.runs)} runs"
        rate = point.trial.records[0].config.get("lr")
        if isinstance(rate, float):
            text = f"lr {rate:g}, {text}"
        if value is None:
            missed.append(Point(point.batch, None, runs=run_ids(point.runs), text=text))
        else:
            known.append(Point(point.batch, value.centre, value.low, value.high, run_ids(point.runs), text))
    series = [Series("best learning rate", known, connected=True), Series("not reached by all runs", missed, "cross")]
    return [item for item in series if item.points]


def _laws(found: CriticalBatch, measured: list[Series]) -> list[Series]:
    """Perfect scaling, the fitted curve with the critical batch, and what the gradient noise scale predicts."""
    first, value = next((point.batch, point.steps) for point in found.points if point.steps is not None)
    last = found.points[-1].batch
    ideal = [(batch, value.centre * first / batch) for batch in (first, last)]
    heights = [steps for _, steps in ideal]
    heights += [point.y for series in measured for point in series.points if point.y is not None]
    bottom, top = min(heights), max(heights)
    series = [dashed_line("perfect scaling", ideal)]
    upright: dict[str, float] = {}
    if found.curve is not None:
        batches = [first * (last / first) ** (step / (_CURVE_POINTS - 1)) for step in range(_CURVE_POINTS)]
        curve = [(batch, found.curve.steps(batch)) for batch in batches]
        series.append(dashed_line("S_min (1 + B_crit / B)", curve))
        # The axis ends at the measured batches.
        critical = found.curve.critical
        low, high = max(critical.low or 0.0, first), min(critical.high or math.inf, last)
        if low < high:
            ends = [Point(batch, None, bottom, top) for batch in (low, high)]
            series.append(Series("critical batch, 95%", ends, "band"))
        upright["critical batch"] = critical.centre
    if found.noise_scale is not None:
        upright["gradient noise scale"] = found.noise_scale.centre
    for name, batch in upright.items():
        if first <= batch <= last:
            series.append(dashed_line(name, [(batch, bottom), (batch, top)]))
    return series
