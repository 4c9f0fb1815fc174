"""Memory of a rank: its kinds in each trial, and against the batch with the limit and the trials that exceeded it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import (
    Line,
    Point,
    bar_groups,
    batch_axis,
    dashed_line,
    factor_axis,
    line_series,
    metric_lines,
    oom_crosses,
    run_ids,
    series_of,
)
from dmls_ray.analysis.findings.memory import memory_line
from dmls_ray.analysis.memory import MEMORY, MEMORY_KINDS, kind_name, memory_limit, memory_metric
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial

_MOST_LINES = 3
"""Lines of trials that have a panel of their kinds of memory."""
_WIDE = 4
"""Ratio of limit to highest value above which the limit is not drawn, so that the values remain readable."""
_BEYOND = 2
"""How many times the largest batch a line goes to."""
_STRAIGHT = "line over the batches"


def chart(table: Table) -> Chart | None:
    """The figure; None if no two runs have the kinds of their memory, and no two trials differ in the batch alone."""
    notes: list[str] = []
    panels = [*_by_kind(table, notes), *_against_batch(table, notes)]
    return Chart(name="memory", title="Memory of a rank", panels=panels, notes=notes) if panels else None


def _by_kind(table: Table, notes: list[str]) -> list[Panel]:
    """Bars of the kinds of memory on each other, which add up to the peak of the tensors."""
    measured = [row for row in table.rows if not row.estimates.keys().isdisjoint(MEMORY_KINDS)]
    if len(measured) < 2:
        return []
    kinds = []
    for name in MEMORY_KINDS:
        if any(name in row.estimates and row.estimates[name].centre > 0 for row in measured):
            kinds.append(name)
    y = Axis("peak of the tensors (MiB)", from_zero=True)
    groups, note = bar_groups(table, measured, _MOST_LINES)
    notes += note
    panels = []
    for title, x, rows in groups:
        bars: list[Series] = []
        for name in kinds:
            bars += _bars(name, x, rows)
        panels.append(Panel(x=x, y=y, series=bars, title=title, stacked=True))
    return panels


def _bars(name: str, x: Axis, rows: Sequence[Trial]) -> list[Series]:
    """A kind of memory of each trial."""
    points = []
    for category, row in zip(x.categories, rows, strict=True):
        value = row.estimates.get(name)
        if value is not None:
            points.append(Point(category, value.centre, runs=run_ids(row.counted), text=f"n={value.n}"))
    return series_of(kind_name(name), points, kind="bar")


def _against_batch(table: Table, notes: list[str]) -> list[Panel]:
    """What a GPU allocated if it is known, else the memory by which trials are compared; with a line to a batch that
    was not run.
    """
    metric = "device_mem_mib" if table.has("device_mem_mib") else memory_metric(table.rows)
    lines, note = metric_lines(table, [metric], batch_axis(table)) if metric else ([], ())
    drawn = [(line, points) for line in lines if (points := line_series(line, lambda row: row.by_block(metric)))]
    if not drawn:
        return []
    notes += note
    highest = max(value for _, points in drawn for item in points for value in item.y if value is not None)
    series: list[Series] = []
    limits: dict[str, float] = {}
    for line, points in drawn:
        named = dict(filter(None, map(memory_limit, line.rows)))
        near = {name: limit for name, limit in named.items() if limit <= _WIDE * highest}
        height = next(iter(near.values())) if len(near) == len(named) == 1 else None
        series += [*points, *_straight(line, metric, notes), *oom_crosses(line, limit=height)]
        limits |= near

    batches = [float(row.factors[line.axis]) for line, _ in drawn for row in line.rows]
    ends = (min(batches), max(batches))
    for name, size in limits.items():
        series.append(dashed_line(name, ends, [size, size]))
    # On a logarithmic axis a straight line would be a curve.
    x = replace(factor_axis(lines), log=False, from_zero=True)
    return [Panel(x=x, y=Axis(f"{MEMORY[metric]} of a rank (MiB)", from_zero=True), series=series)]


def _straight(line: Line, metric: str, notes: list[str]) -> list[Series]:
    """The line over the batches, with its estimate in the notes; empty if they are not on one."""
    fitted = memory_line(line.rows, line.axis, metric)
    if fitted is None:
        return []
    batch = _BEYOND * max(fitted.batches)
    place = f"{line.title}: " if line.title else ""
    notes.append(f"{place}{fitted.describe(batch)}.")
    ends = (min(fitted.batches), batch)
    return [dashed_line(_STRAIGHT, ends, list(map(fitted.at, ends)), line.name)]
