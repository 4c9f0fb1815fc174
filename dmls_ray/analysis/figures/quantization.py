"""What int8 does: test accuracy, size of the checkpoint and latency in fp32 and in int8, and the speed of training."""

from __future__ import annotations

from dataclasses import replace

from dmls_ray.analysis.figures.answer import MOST_LINES
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.drawn_trials import limit_items
from dmls_ray.analysis.figures.series import (
    line_panel,
    lines_along,
    measured_series,
    plotted_measures,
    trained_together,
)
from dmls_ray.analysis.findings.quantization import FIELD, metric_of_form
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.axis import count_values

_PANELS = {
    "test_accuracy": Axis("test accuracy (fraction of samples)"),
    "checkpoint_bytes": Axis("size of the checkpoint (bytes)", from_zero=True),
    "compiled_ms_p50": Axis("median latency, compiled (ms)", from_zero=True),
}
"""Metric of fp32 and of int8 without its prefix -> its axis."""


def chart(table: Table) -> Chart | None:
    """The figure; None unless the sweep asks about quantization, and two kinds of it were measured."""
    rows = trained_together(table)
    measured = [row for row in rows if row.counted]
    if table.axis != FIELD or count_values(measured, FIELD) < 2:
        return None
    x, lines = lines_along(table, rows, FIELD)
    lines, notes = limit_items(lines, "lines", MOST_LINES)
    panels: list[Panel] = []
    for suffix, y in _PANELS.items():
        series: list[Series] = []
        for line in lines:
            for form in ("fp32", "int8"):
                metric = f"{form}_{suffix}"
                points = [(kind, row, row.by_block(metric_of_form(row, metric))) for kind, row in line.points]
                series += measured_series(", ".join(filter(None, [form, line.title])), points, metric=metric)
        if series:
            panels.append(Panel(x=x, y=y, series=series))
    training = [replace(line, name=line.title or "training") for line in lines]
    for plotted in plotted_measures(table, measured):
        if not plotted.metric:
            panels += line_panel(plotted.on(label=f"training {plotted.y.label}"), x, training)
    return Chart(
        name=FIELD, title="Accuracy, size and latency in fp32 and in int8, and speed of training", panels=panels,
        notes=["fp32 and int8 are of the same training; without quantization there is fp32 alone.", *notes],
    )  # fmt: skip
