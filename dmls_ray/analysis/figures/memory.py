"""Memory of a rank: its kinds in each trial, and against the batch with the limit and the trials that exceeded it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import (
    batch_axis,
    dashed_line,
    line_panel,
    metric_lines,
    plotted_metric,
    stacked_panels,
)
from dmls_ray.analysis.memory import MEMORY_KINDS, memory_limit, memory_metric
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial

_WIDE = 4
"""Ratio of limit to highest value above which the limit is not drawn, so that the values remain readable."""


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
    panels, note = stacked_panels(table, rows, Axis("peak of the tensors (MiB)", from_zero=True), parts)
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
