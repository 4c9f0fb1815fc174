"""Time of an epoch and of an optimizer step against the batch."""

from __future__ import annotations

from dmls_ray.analysis.figures.chart import Chart, Panel
from dmls_ray.analysis.figures.series import batch_axis, line_panel, metric_lines, plotted_metric
from dmls_ray.analysis.table.model import Table


def chart(table: Table) -> Chart | None:
    """The figure; None if no two trials with a time differ only in the batch."""
    plotted = [
        plotted_metric("epoch_s", "training time per epoch (s)"),
        plotted_metric("step_ms_p50", "median optimizer step (ms)"),
    ]
    x, lines, notes = metric_lines(table, plotted, batch_axis(table))
    panels: list[Panel] = []
    for item in plotted:
        panels += line_panel(item.on(log=x.log), x, lines)
    return Chart(name="batch", title="Time against batch", panels=panels, notes=notes) if panels else None
