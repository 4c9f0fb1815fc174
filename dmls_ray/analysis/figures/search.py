"""The metric of a search: by trial, in the order of their start, and against each field that was searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.plotted import Plotted, plotted_metric
from dmls_ray.analysis.figures.series import (
    Line,
    category_axis,
    dashed_line,
    differing_fields,
    factor_axis,
    format_factor,
    has_numbers,
    lost_crosses,
)
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Trial

_MOST_FIELDS = 5
_TO_THE_END = "trained to the end"
_STOPPED = "stopped early"
_FAR = 20
"""Ratio of the highest to the lowest value above which the axis is logarithmic."""


def chart(table: Table) -> Chart | None:
    """The figure; None unless a search has two trials with a value of its metric."""
    if table.best_by is None:
        return None
    name, minimizes = table.best_by
    rows = sorted(table.rows, key=lambda row: min(record.order for record in row.records))
    numbers = {row.trial_id: number for number, row in enumerate(rows, start=1)}
    known = [row for row in rows if row.value_of(name) is not None]
    if len(known) < 2:
        return None
    plotted = plotted_metric(name)
    levels = [row.value_of(name) or 0.0 for row in known]
    y = Axis(plotted.label, log=max(levels) > _FAR * min(levels) > 0)

    trials = _points(rows, plotted, lambda row: float(numbers[row.trial_id]))
    best = _best_so_far(known, numbers, name, minimizes=minimizes)
    panels = [Panel(x=Axis("trial (in the order of their start)"), y=y, series=[*trials, *best])]
    fields = differing_fields(table, known)
    for field in fields[:_MOST_FIELDS]:
        panels.append(_against(field, known, plotted, y))
    notes = []
    if fields[_MOST_FIELDS:]:
        notes.append(f"Not drawn: {', '.join(fields[_MOST_FIELDS:])}.")
    title = f"{plotted.label.partition(' (')[0]} of {len(known)} configurations"
    return Chart(name="search", title=f"{title[:1].upper()}{title[1:]}", panels=panels, notes=notes)


def _against(field: str, rows: Sequence[Trial], plotted: Plotted, y: Axis) -> Panel:
    """The metric against a field; trials without a value of the field are left out."""
    rows = [row for row in rows if row.factors[field] is not None]
    if has_numbers(rows, field):
        x = factor_axis([Line("", field, list(rows))])
        return Panel(x=x, y=y, series=_points(rows, plotted, lambda row: float(row.factors[field])))
    ordered = sorted(rows, key=lambda row: row.position([field]))
    x = category_axis(field, ordered)
    return Panel(x=x, y=y, series=_points(rows, plotted, lambda row: format_factor(row.factors[field])))


def _points(rows: Sequence[Trial], plotted: Plotted, place: Callable[[Trial], float | str]) -> list[Series]:
    """The trials that were trained to the end, those that were stopped, and crosses of those without a value."""
    series: list[Series] = []
    for name, is_stopped in ((_TO_THE_END, False), (_STOPPED, True)):
        shown = [row for row in rows if row.is_stopped == is_stopped and plotted.values(row)]
        for measured in plotted.series(name, [(place(row), row) for row in shown]):
            texts = [describe_configuration(row.factors) for row in shown]
            series.append(replace(measured, texts=texts, muted=is_stopped))
    return [*series, *lost_crosses(_TO_THE_END, [(place(row), row) for row in rows])]


def _best_so_far(rows: Sequence[Trial], numbers: dict[str, int], name: str, *, minimizes: bool) -> list[Series]:
    """The best value of the trials that were trained to the end, from one trial to the next."""
    best: float | None = None
    x: list[float] = []
    y: list[float | None] = []
    for row in (row for row in rows if not row.is_stopped):
        level = row.value_of(name) or 0.0
        is_better = best is None or (level < best if minimizes else level > best)
        best = level if is_better else best
        x.append(float(numbers[row.trial_id]))
        y.append(best)
    return [dashed_line("best so far", x, y)] if len(x) > 1 else []
