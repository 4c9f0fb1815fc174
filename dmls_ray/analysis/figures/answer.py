"""What a sweep asks: throughput, accuracy and whatever else its answer compares, against the axis it asks about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import (
    SINGLE_LINE,
    Line,
    differing_fields,
    factor_axis,
    format_factor,
    is_number,
    limit_items,
    measured_series,
    oom_crosses,
    trial_label,
)
from dmls_ray.analysis.metrics import label_of, quantity_of
from dmls_ray.analysis.stats.intervals import Quantity
from dmls_ray.analysis.summary.measures import Measure
from dmls_ray.analysis.table.axis_groups import all_groups_along_axis, count_values
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row

_MOST_LINES = 4
"""Lines of a panel; of more, there is a panel for each value of the field with the fewest values."""
_MOST_PANELS = 4
"""Panels of a measure."""
_MOST_MEASURES = 3
_TUNED = "lr"
"""The field of which the best value is marked, where it varies besides the axis."""


def chart(table: Table) -> Chart | None:
    """The figure; None if no two trials differ only in the axis that the sweep asks about.

    None for a workload with figures of its own, too: these come first and answer its question.
    """
    axis = table.axis
    rows = [row for row in table.rows if row.counted and not row.independent_ranks]
    if table.presentation.figures or count_values(rows, axis) < 2:
        return None
    lines = [line for line in _lines(table, rows, axis) if len(line.rows) > 1]
    if not lines:
        return None
    panels: list[Panel] = []
    notes: list[str] = []
    measures = [item for item in table.presentation.measures(rows) if any(map(item.is_of, rows))][:_MOST_MEASURES]
    for measure in measures:
        for title, shown in _multiples(table, lines, notes):
            panels += _panel(measure, axis, shown, title)
    *names, last = dict.fromkeys(panel.y.label.partition(" (")[0] for panel in panels) or [""]
    subject = f"{', '.join(names)} and {last}" if names else last
    title = f"{subject[:1].upper()}{subject[1:]} against {axis}"
    return Chart(name="answer", title=title, panels=panels, notes=tuple(dict.fromkeys(notes))) if panels else None


def _lines(table: Table, rows: Sequence[Row], axis: str) -> list[Line]:
    """The trials that differ in the axis alone, numbers in order."""
    groups = all_groups_along_axis(rows, axis, table.fixed_batch_field)
    if all(is_number(row.factors[axis]) for row in rows):
        groups = [sorted(group, key=lambda row: row.factors[axis]) for group in groups]
    within = {axis} | {name for group in groups for name in table.varied if count_values(group, name) > 1}
    names = [name for name in differing_fields(table, [group[0] for group in groups]) if name not in within]
    return [Line(trial_label(group[0], names) or SINGLE_LINE, axis, group) for group in groups]


def _multiples(table: Table, lines: Sequence[Line], notes: list[str]) -> list[tuple[str, list[Line]]]:
    """The lines of each panel of a measure, with its title: all in one, or one for each value of another field."""
    if len(lines) <= _MOST_LINES:
        return [("", list(lines))]
    firsts = [line.rows[0] for line in lines]
    names = [name for name in differing_fields(table, firsts) if name != lines[0].axis]
    field = min(names, key=lambda name: (name == _TUNED, count_values(firsts, name)))
    rest = [name for name in names if name != field]
    by_value: dict[str, list[Line]] = {}
    for line in lines:
        value = format_factor(line.rows[0].factors[field])
        by_value.setdefault(value, []).append(replace(line, name=trial_label(line.rows[0], rest) or SINGLE_LINE))
    kept, note = limit_items(list(by_value.items()), f"values of {field}", _MOST_PANELS)
    notes += note
    multiples = []
    for value, all_of_value in kept:
        shown, note = limit_items(all_of_value, "lines")
        notes += note
        multiples.append((f"{field} {value}", shown))
    return multiples


def _panel(measure: Measure, axis: str, lines: Sequence[Line], title: str) -> list[Panel]:
    rows = [row for line in lines for row in line.rows]
    if all(is_number(row.factors[axis]) for row in rows):
        x = factor_axis(lines)
    else:
        x = Axis(axis, categories=list(dict.fromkeys(format_factor(row.factors[axis]) for row in rows)))
    series: list[Series] = []
    for line in lines:
        series += [*_series(measure, line, x), *(oom_crosses(line) if not x.categories else [])]
    if measure.kind == "points" and any(_TUNED in row.factors for row in rows) and axis != _TUNED:
        series += _tuned(measure, lines, x)
    y = Axis(_label(measure, rows), from_zero=measure.kind == "ratio")
    return [Panel(x=x, y=y, series=series, title=title)] if series else []


def _series(measure: Measure, line: Line, x: Axis) -> list[Series]:
    points = [(_place(row, line.axis, x), row, _values(measure, row)) for row in line.rows]
    return measured_series(
        line.name, points, quantity=_quantity(measure, points), metric=_metric(measure), connected=not x.categories
    )


def _tuned(measure: Measure, lines: Sequence[Line], x: Axis) -> list[Series]:
    """At each value of the axis the trial with the best learning rate, with this rate as its text."""
    best: dict[float | str, Row] = {}
    for line in lines:
        for row in line.rows:
            place = _place(row, line.axis, x)
            if measure.is_of(row) and (place not in best or _level(row, measure) > _level(best[place], measure)):
                best[place] = row
    if len(best) < 2:
        return []
    ordered = sorted(best.items(), key=lambda item: str(item[0]) if x.categories else float(item[0]))
    points = [(place, row, _values(measure, row)) for place, row in ordered]
    found = measured_series(f"best {_TUNED}", points, quantity=_quantity(measure, points), metric=_metric(measure))
    texts = [f"{_TUNED} {format_factor(row.factors[_TUNED])}" for _, row in ordered]
    return [replace(item, texts=texts, connected=not x.categories) for item in found]


def _level(row: Row, measure: Measure) -> float:
    level = row.value_of(measure.name)
    assert level is not None, measure.name
    return level


def _place(row: Row, axis: str, x: Axis) -> float | str:
    value = row.factors[axis]
    return format_factor(value) if x.categories else value


def _values(measure: Measure, row: Row) -> Mapping[int, float]:
    return row.rates() if measure.name == "speed" else row.by_block(measure.name)


def _metric(measure: Measure) -> str:
    return "" if measure.name == "speed" else measure.name


def _quantity(measure: Measure, points: Sequence[tuple[Any, Row, Mapping[int, float]]]) -> Quantity:
    values = [value for _, _, by_block in points for value in by_block.values()]
    return "rate" if measure.name == "speed" else quantity_of(measure.name, values)


def _label(measure: Measure, rows: Sequence[Row]) -> str:
    if measure.kind == "points":
        return f"{measure.words} (fraction of samples)"
    if measure.name == "total_s":
        return "run time (s)"
    if measure.name != "speed":
        return measure.words
    names = {row.throughput for row in rows if row.by_block(row.throughput)}
    return f"throughput ({label_of(names.pop())})" if len(names) == 1 else "throughput (runs/s)"
