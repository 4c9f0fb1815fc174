"""What int8 does: test accuracy, size of the checkpoint and latency in fp32 and in int8, and the speed of training."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.figures.answer import MOST_LINES
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.plotted import plotted_measures
from dmls_ray.analysis.figures.series import (
    category_axis,
    differing_fields,
    limit_items,
    lost_crosses,
    measured_series,
    trained_together,
    trial_label,
)
from dmls_ray.analysis.findings.quantization import FIELD, metric_of_form
from dmls_ray.analysis.metrics import quantity_of
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.groups import count_values, group_by_other_factors
from dmls_ray.analysis.trials.trial import Trial

_PANELS = {
    "test accuracy (fraction of samples)": ("fp32_test_accuracy", "int8_test_accuracy"),
    "size of the checkpoint (bytes)": ("fp32_checkpoint_bytes", "int8_checkpoint_bytes"),
    "median latency, compiled (ms)": ("fp32_compiled_ms_p50", "int8_compiled_ms_p50"),
}
"""Label of a panel -> the metrics of fp32 and of int8."""
_FORMS = ("fp32", "int8")


def chart(table: Table) -> Chart | None:
    """The figure; None unless the sweep asks about quantization, and two kinds of it were measured."""
    rows = trained_together(table)
    if table.axis != FIELD or count_values([row for row in rows if row.counted], FIELD) < 2:
        return None
    groups, notes = limit_items(group_by_other_factors(rows, {FIELD}), "lines", MOST_LINES)
    x = category_axis(FIELD, rows)
    firsts = [group[0] for group in groups]
    names = [name for name in differing_fields(table, firsts) if name != FIELD]
    panels: list[Panel] = []
    for label, metrics in _PANELS.items():
        series: list[Series] = []
        for group in groups:
            series += _forms(group, metrics, trial_label(group[0], names))
        if series:
            panels.append(Panel(x=x, y=Axis(label, from_zero=not label.startswith("test")), series=series))
    panels += _of_training(table, groups, names, x)
    return Chart(
        name=FIELD, title="Accuracy, size and latency in fp32 and in int8, and speed of training", panels=panels,
        notes=("fp32 and int8 are of the same training; without quantization there is fp32 alone.", *notes),
    )  # fmt: skip


def _forms(group: Sequence[Trial], metrics: Sequence[str], place: str) -> list[Series]:
    """A metric of the fp32 and of the int8 form of the trials that differ in quantization alone."""
    series: list[Series] = []
    for form, metric in zip(_FORMS, metrics, strict=True):
        name = ", ".join(filter(None, [form, place]))
        points = [(str(row.factors[FIELD]), row, row.by_block(metric_of_form(row, metric))) for row in group]
        series += measured_series(name, points, quantity=quantity_of(metric), metric=metric)
    return series


def _of_training(table: Table, groups: Sequence[Sequence[Trial]], names: Sequence[str], x: Axis) -> list[Panel]:
    """The speed of training, with a cross for each trial that could not be measured."""
    measured = [row for group in groups for row in group if row.counted]
    panels = []
    for plotted in (item for item in plotted_measures(table, measured) if not item.metric):
        series: list[Series] = []
        for group in groups:
            place = trial_label(group[0], names) or "training"
            points = [(str(row.factors[FIELD]), row) for row in group]
            series += [*plotted.series(place, points), *lost_crosses(place, points)]
        panels.append(Panel(x=x, y=Axis(f"training {plotted.label}", from_zero=True), series=series))
    return panels
