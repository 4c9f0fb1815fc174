"""Memory of a rank: its kinds in each trial, and against the batch with the limit and the trials that exceeded it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import (
    SINGLE_LINE,
    Line,
    batch_axis,
    factor_axis,
    format_factor,
    limit_items,
    line_series,
    lines_along,
    metric_lines,
    oom_crosses,
    trial_axis,
)
from dmls_ray.analysis.findings.memory import memory_line
from dmls_ray.analysis.memory import MEMORY, MEMORY_KINDS, kind_name, memory_limit, memory_metric
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Row

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
    """Bars of the kinds of memory on each other, which add up to the peak of the tensors.

    Where trials differ in the batch, a panel for each line of them.
    """
    measured = [row for row in table.rows if any(name in row.estimates for name in MEMORY_KINDS)]
    axis = batch_axis(table)
    if lines := lines_along(table, measured, axis):
        shown, note = limit_items(lines, "lines", _MOST_LINES)
        notes += note
        return [
            _kinds(
                Axis(axis, categories=[format_factor(row.factors[axis]) for row in line.rows]),
                line.rows,
                "" if line.name == SINGLE_LINE else line.name,
            )
            for line in shown
        ]
    rows, note = limit_items(measured, "trials", MAX_CATEGORIES)
    notes += note
    return [_kinds(trial_axis(table, rows)[0], rows, "")] if len(rows) > 1 else []


def _kinds(x: Axis, rows: Sequence[Row], title: str) -> Panel:
    series = []
    for name in MEMORY_KINDS:
        known = [(label, row) for label, row in zip(x.categories, rows, strict=True) if name in row.estimates]
        if any(row.estimates[name].centre > 0 for _, row in known):
            series.append(
                Series(
                    name=kind_name(name),
                    kind="bar",
                    x=[label for label, _ in known],
                    y=[row.estimates[name].centre for _, row in known],
                    runs=[tuple(record.run_id for record in row.counted) for _, row in known],
                    texts=[f"n={row.estimates[name].n}" for _, row in known],
                )
            )
    return Panel(x=x, y=Axis("peak of the tensors (MiB)", from_zero=True), series=series, title=title, stacked=True)


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
    series += [Series(name=name, kind="line", x=ends, y=[size, size], dashed=True) for name, size in limits.items()]
    # On a logarithmic axis a straight line would be a curve.
    x = replace(factor_axis(lines), log=False, from_zero=True)
    return [Panel(x=x, y=Axis(f"{MEMORY[metric]} of a rank (MiB)", from_zero=True), series=series)]


def _straight(line: Line, metric: str, notes: list[str]) -> list[Series]:
    """The line over the batches, with its estimate in the notes; empty if they are not on one."""
    fitted = memory_line(line.rows, line.axis, metric)
    if fitted is None:
        return []
    batch = _BEYOND * max(fitted.batches)
    notes.append(f"{'' if line.name == SINGLE_LINE else f'{line.name}: '}{fitted.describe(batch)}.")
    ends = (min(fitted.batches), batch)
    y = [fitted.at(end) for end in ends]
    return [Series(name=_STRAIGHT, kind="line", x=ends, y=y, dashed=True, same_as=line.name)]
