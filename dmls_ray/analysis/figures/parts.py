"""What the time of an optimizer step and the memory of a rank consist of, as bars, and the limit of the memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Axis, Chart, Panel, Point, Series
from dmls_ray.analysis.figures.series import (
    Place,
    batch_axis,
    dashed_line,
    differing_fields,
    field_axis,
    format_factor,
    limit_items,
    line_panel,
    lines_along,
    metric_lines,
    plotted_metric,
    run_ids,
    trial_labels,
)
from dmls_ray.analysis.memory import MEMORY_KINDS, memory_limit, memory_metric
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.steps import PARTS, bounds_of, step_parts
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import join_names

_MOST_PANELS = 4
"""Lines of trials that have a panel of bars."""
_WIDE = 4
"""Ratio of limit to highest value above which the limit is not drawn, so that the values remain readable."""

_BOUNDS = {
    "input": "waiting for data",
    "communication": "communication and waiting for other ranks",
    "launch": "what a step takes at any batch (launch-bound)",
    "compute": "computing",
    "compute or launch": "computing, or what a step takes at any batch (not distinguished)",
}


def step_parts_chart(table: Table) -> Chart | None:
    """The parts of an optimizer step in each trial, as stacked bars; None if fewer than two trials have them."""
    measured = {row.trial_id: known for row in table.rows if (known := step_parts(row))}
    rows = [row for row in table.rows if row.trial_id in measured]
    if len(rows) < 2:
        return None
    parts = {}
    for name, words in PARTS.items():
        if any(item[name] > 0 for item in measured.values()):
            parts[words] = lambda row, name=name: measured[row.trial_id][name]
    y = Axis("time of an optimizer step (ms)", from_zero=True)
    panels, notes = _stacked_panels(table, rows, y, parts)
    bounds = bounds_of(table.rows, table.varied, table.fixed_batch_field)
    for bound, words in _BOUNDS.items():
        bounded = [describe_configuration(row.factors) for row in rows if bounds[row.trial_id] == bound]
        if bounded:
            notes.append(f"Bound by {words}: {join_names(bounded)}.")
    return Chart(name="step_parts", title="Where an optimizer step goes", panels=panels, notes=notes)


def memory_chart(table: Table) -> Chart | None:
    """The figure; None if no two runs have the kinds of their memory, and no two trials differ in the batch alone."""
    notes: list[str] = []
    panels = [*_by_kind(table, notes), *_against_batch(table, notes)]
    return Chart(name="memory", title="Memory of a rank", panels=panels, notes=notes) if panels else None


def _by_kind(table: Table, notes: list[str]) -> list[Panel]:
    """Bars of the kinds of memory on each other, which add up to the peak of the tensors."""
    rows = [row for row in table.rows if not row.estimates.keys().isdisjoint(MEMORY_KINDS)]
    if len(rows) < 2:
        return []
    kinds = [name for name in MEMORY_KINDS if any(row.value_of(name) for row in rows)]
    parts = {name.removesuffix("_mem_mib"): partial(Trial.value_of, metric=name) for name in kinds}
    panels, note = _stacked_panels(table, rows, Axis("peak of the tensors (MiB)", from_zero=True), parts)
    notes += note
    return panels


def _against_batch(table: Table, notes: list[str]) -> list[Panel]:
    """What a GPU allocated if it is known, else the memory by which trials are compared."""
    metric = "device_mem_mib" if table.has("device_mem_mib") else memory_metric(table.rows)
    plotted = plotted_metric(metric, from_zero=True)
    field = batch_axis(table)
    x, lines, note = metric_lines(table, plotted, field)
    # On a logarithmic axis a straight line would be a curve.
    panels = line_panel(plotted, replace(x, log=False, from_zero=True, ticks=()), lines)
    if not panels:
        return []
    notes += note
    rows = [row for line in lines for row in line.rows]
    return [replace(panels[0], series=[*panels[0].series, *_limits(rows, metric, field)])]


def _limits(rows: Sequence[Trial], metric: str, field: str) -> list[Series]:
    """The limits of memory, as far as they are near the values."""
    highest = max(value for row in rows if (value := row.value_of(metric)) is not None)
    batches = [row.factors[field] for row in rows]
    limits = dict(filter(None, map(memory_limit, rows)))
    return [
        dashed_line(name, [(min(batches), size), (max(batches), size)])
        for name, size in limits.items()
        if size <= _WIDE * highest
    ]


def _stacked_panels(
    table: Table, rows: Sequence[Trial], y: Axis, parts: Mapping[str, Callable[[Trial], float | None]]
) -> tuple[list[Panel], list[str]]:
    """Bars of the parts of an amount on each other, and notes.

    Where trials differ in the batch, there is a panel for each line of them: its labels are short. Elsewhere each
    trial has the value of the field in which the trials differ, or its label if they differ in several.

    Args:
        table: table of the sweep.
        rows: the trials.
        y: the amount.
        parts: name of each part and its value in a trial.
    """
    x, lines = lines_along(table, rows, batch_axis(table))
    if not lines:
        shown, notes = limit_items(rows, "trials", MAX_CATEGORIES)
        label, texts = "trial", trial_labels(table, shown)
        names = differing_fields(table, shown)
        if len(names) == 1:
            label = field_axis(names[0], shown).label
            texts = [format_factor(row.factors[names[0]]) for row in shown]
        return [_stacked_panel(label, list(zip(texts, shown, strict=True)), y, parts)], notes
    lines, notes = limit_items(lines, "lines", _MOST_PANELS)
    panels = [_stacked_panel(x.label, line.points, y, parts) for line in lines]
    return [replace(panel, title=line.title) for panel, line in zip(panels, lines, strict=True)], notes


def _stacked_panel(
    label: str, trials: Sequence[tuple[Place, Trial]], y: Axis, parts: Mapping[str, Callable[[Trial], float | None]]
) -> Panel:
    """The bars of some trials, each at its x as a category."""
    bars = []
    for name, value_of in parts.items():
        points = []
        for place, row in trials:
            text = f"n={len(row.counted)}"
            points.append(Point(str(place), value_of(row), runs=run_ids(row.counted), text=text))
        bars.append(Series(name, points, "bar"))
    x = Axis(label, categories=[str(place) for place, _ in trials])
    return Panel(x=x, y=y, series=bars, stacked=True)
