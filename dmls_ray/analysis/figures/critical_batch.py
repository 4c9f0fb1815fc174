"""Steps and seconds to a target against the global batch, at the best learning rate of each."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.critical_batch import BatchPoint, CriticalBatch, critical_batch, describe_critical
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.stats.intervals import Estimate
from dmls_ray.analysis.table.model import Table

_CURVE_POINTS = 33
_MEASURED = "best learning rate"


def chart(table: Table) -> Chart | None:
    """The figure; None unless `critical_batch` has an answer."""
    found = critical_batch(table)
    if found is None or not any(point.steps for point in found.points):
        return None
    x = Axis("global_batch (samples)", log=True)
    label = f"to a test accuracy of {found.target:g}"
    panels = [
        Panel(x=x, y=Axis(f"optimizer steps {label}", log=True), series=_steps(found)),
        Panel(
            x=x,
            y=Axis(f"seconds {label}", log=True),
            series=_measured(found.points, [point.seconds for point in found.points]),
        ),
    ]
    notes = (
        "Each batch at the learning rate that needs fewest steps with it; a cross: no run of the batch got there. Runs "
        "that did not get there are left out of the mean of the others; how many did is in the text of a point.",
        f"Critical batch: {describe_critical(found)}.",
    )
    return Chart(name="critical_batch", title="Steps and time to the target", panels=panels, notes=notes)


def _steps(found: CriticalBatch) -> list[Series]:
    series = _measured(found.points, [point.steps for point in found.points])
    first = next(point for point in found.points if point.steps)
    ends = (float(first.batch), float(found.points[-1].batch))
    assert first.steps is not None
    ideal = [first.steps.centre * first.batch / batch for batch in ends]
    series.append(Series(name="perfect scaling", kind="line", x=ends, y=ideal, dashed=True))
    if found.critical is not None:
        places = [ends[0] * (ends[1] / ends[0]) ** (step / (_CURVE_POINTS - 1)) for step in range(_CURVE_POINTS)]
        curve = [found.curve(place) for place in places]
        series.append(Series(name="S_min (1 + B_crit / B)", kind="line", x=places, y=curve, dashed=True))
        if ends[0] <= found.critical.centre <= ends[1]:
            heights = [value for value in (curve[0], curve[-1]) if value is not None]
            series.append(
                Series(
                    name="critical batch", kind="line", x=[found.critical.centre] * 2, y=sorted(heights), dashed=True
                )
            )
    return series


def _measured(points: Sequence[BatchPoint], values: Sequence[Estimate | None]) -> list[Series]:
    known = [(point, value) for point, value in zip(points, values, strict=True) if value is not None]
    never = [point for point, value in zip(points, values, strict=True) if value is None]
    series = []
    if known:
        series.append(
            Series(
                name=_MEASURED, x=[float(point.batch) for point, _ in known], y=[value.centre for _, value in known],
                low=[value.low for _, value in known], high=[value.high for _, value in known], connected=True,
                runs=[_runs(point) for point, _ in known],
                texts=[_text(point) for point, _ in known],
            )
        )  # fmt: skip
    if never:
        series.append(
            Series(
                name="not reached", kind="cross", x=[float(point.batch) for point in never], y=[None] * len(never),
                runs=[_runs(point) for point in never], texts=[_text(point) for point in never],
            )
        )  # fmt: skip
    return series


def _runs(point: BatchPoint) -> tuple[str, ...]:
    return tuple(record.run_id for record in point.row.timed)


def _text(point: BatchPoint) -> str:
    return f"lr {point.row.records[0].config.get('lr'):g}, {point.reached} of {point.runs} runs"
