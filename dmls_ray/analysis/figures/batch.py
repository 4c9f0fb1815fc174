"""Time of an epoch and of an optimizer step against the batch."""

from __future__ import annotations

from functools import partial

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import batch_axis, factor_axis, line_series, metric_lines, oom_crosses
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial

_METRICS = {
    "epoch_s": "training time per epoch (s)",
    "step_ms_p50": "median optimizer step (ms)",
}


def chart(table: Table) -> Chart | None:
    """The figure; None if no two trials with a time differ only in the batch."""
    lines, notes = metric_lines(table, _METRICS, batch_axis(table))
    panels = []
    for metric, label in _METRICS.items():
        series: list[Series] = []
        for line in lines:
            if points := line_series(line, partial(Trial.by_block, metric=metric)):
                series += [*points, *oom_crosses(line)]
        if series:
            x = factor_axis(lines)
            panels.append(Panel(x=x, y=Axis(label, log=x.log), series=series))
    return Chart(name="batch", title="Time against batch", panels=panels, notes=notes) if panels else None
