"""Time of an epoch and of an optimizer step against the batch."""

from __future__ import annotations

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.lines import batch_axis, factor_axis, lines_along
from dmls_ray.analysis.figures.series import limit_items, measured_series, oom_crosses, rows_with_any
from dmls_ray.analysis.table.model import Table

_METRICS = {
    "epoch_s": "training time per epoch (s)",
    "step_ms_p50": "median optimizer step (ms)",
}


def chart(table: Table) -> Chart | None:
    """The figure; None if no two trials with a time differ only in the batch."""
    axis = batch_axis(table)
    lines, notes = limit_items(lines_along(table, rows_with_any(table.rows, _METRICS), axis), "lines")
    panels = []
    for measure, words in _METRICS.items():
        series: list[Series] = []
        for line in lines:
            at = [(row.factors[axis], row, row.by_block(measure)) for row in line.rows]
            points = measured_series(line.name, at, connected=True)
            series += [] if points is None else [points, *oom_crosses(line, lambda row: row.factors[axis])]
        if series:
            x = factor_axis(axis, [row for line in lines for row in line.rows])
            panels.append(Panel(x=x, y=Axis(words, log=x.log), series=series))
    return Chart(name="batch", title="Time against batch", panels=panels, notes=notes) if panels else None
