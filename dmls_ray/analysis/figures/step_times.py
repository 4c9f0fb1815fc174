"""How long optimizer steps took: which share of them was done in so many milliseconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Point, Series
from dmls_ray.analysis.figures.drawn_trials import limit_rows
from dmls_ray.analysis.figures.series import run_ids
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.epoch_and_rank import STEP_QUANTILES

_FAR = 10
"""Slowest by fastest step, from which on the axis is logarithmic."""


def chart(table: Table) -> Chart | None:
    """The figure; None where no run whose times count has quantiles of its steps."""
    rows, notes = limit_rows(table, [row for row in table.rows if row.timed], lambda row: bool(quantiles(row)))
    if not rows:
        return None
    series = []
    times: list[float] = []
    for name, row in rows.items():
        runs = run_ids(row.timed)
        points = []
        for share, value in zip(STEP_QUANTILES, quantiles(row), strict=True):
            points.append(Point(value, share, runs=runs, text=f"{share:.0%} of the steps"))
            times.append(value)
        series.append(Series(name, points, connected=True))
    x = Axis("optimizer step (ms)", log=max(times) > _FAR * min(times) > 0)
    panel = Panel(x=x, y=Axis("steps done by then (fraction)", from_zero=True), series=series)
    notes.append("At each share the median over all ranks of all runs of a trial.")
    return Chart(
        name="step_times", title="Time of an optimizer step: empirical distribution", panels=[panel], notes=notes
    )


def quantiles(row: Trial) -> Sequence[float]:
    """Milliseconds at each of `STEP_QUANTILES`, the median over the ranks of the runs; empty without step times."""
    ranks = [rank for record in row.timed for rank in record.ranks if rank.step_ms_quantiles]
    return [statistics.median(values) for values in zip(*(rank.step_ms_quantiles for rank in ranks), strict=True)]
