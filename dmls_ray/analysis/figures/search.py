"""The metric of a search: by trial, in the order of their start, and against each field that was searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.drawn_trials import differing_fields
from dmls_ray.analysis.figures.series import (
    Place,
    Plotted,
    dashed_line,
    field_axis,
    lost_crosses,
    place_of,
    plotted_metric,
)
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial, describe_configuration

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
    levels = [row.value_of(name) or 0.0 for row in known]
    plotted = plotted_metric(name, log=max(levels) > _FAR * min(levels) > 0)

    trials = _points(rows, plotted, lambda row: numbers[row.trial_id])
    best: list[tuple[Place, float]] = []
    for row in known:
        if not row.is_stopped:
            levels = [row.value_of(name) or 0.0, *(level for _, level in best[-1:])]
            best.append((numbers[row.trial_id], min(levels) if minimizes else max(levels)))
    if len(best) > 1:
        trials.append(dashed_line("best so far", best))
    panels = [Panel(x=Axis("trial (in the order of their start)"), y=plotted.y, series=trials)]
    fields = differing_fields(table, known)
    for field in fields[:_MOST_FIELDS]:
        panels.append(_against(field, known, plotted))
    notes = []
    if fields[_MOST_FIELDS:]:
        notes.append(f"Not drawn: {', '.join(fields[_MOST_FIELDS:])}.")
    title = f"{plotted.y.label.partition(' (')[0]} of {len(known)} configurations"
    return Chart(name="search", title=f"{title[:1].upper()}{title[1:]}", panels=panels, notes=notes)


def _against(field: str, rows: Sequence[Trial], plotted: Plotted) -> Panel:
    """The metric against a field; trials without a value of the field are left out."""
    known = [row for row in rows if row.factors[field] is not None]
    known.sort(key=lambda row: row.position([field]))
    x = field_axis(field, known)
    return Panel(x=x, y=plotted.y, series=_points(known, plotted, lambda row: place_of(row, field, x)))


def _points(rows: Sequence[Trial], plotted: Plotted, place: Callable[[Trial], Place]) -> list[Series]:
    """The trials that were trained to the end, those that were stopped, and crosses of those without a value."""
    series: list[Series] = []
    for name, is_stopped in ((_TO_THE_END, False), (_STOPPED, True)):
        points = [(place(row), row) for row in rows if row.is_stopped == is_stopped]
        series += plotted.series(name, points, describe=_configuration, muted=is_stopped)
    return [*series, *lost_crosses(_TO_THE_END, [(place(row), row) for row in rows])]


def _configuration(row: Trial) -> str:
    return describe_configuration(row.factors)
