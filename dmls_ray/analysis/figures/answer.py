"""What a sweep asks: throughput, accuracy, memory and whatever else its answer compares, against the axis it asks
about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.plotted import Plotted, plotted_measures, plotted_memory, plotted_of_question
from dmls_ray.analysis.figures.series import (
    SINGLE_LINE,
    Line,
    category_axis,
    differing_fields,
    factor_axis,
    format_factor,
    has_numbers,
    limit_items,
    lost_crosses,
    named_lines,
    rows_of,
    trained_together,
    trial_label,
)
from dmls_ray.analysis.findings.answer import axis_that_varies
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.groups import count_values
from dmls_ray.analysis.trials.trial import Trial

MOST_LINES = 4
"""Lines of a panel; of more, there is a panel for each value of the field with the fewest values."""
_MOST_PANELS = 4
"""Panels of a measure."""
_TUNED = "lr"
"""The field of which the best value is marked, where it varies besides the axis."""


def chart(table: Table) -> Chart | None:
    """The figure; None if no two trials differ only in the axis that the sweep asks about.

    Where only one value of it was measured, the axis is the one that the answer goes along.
    """
    together = trained_together(table)
    rows = [row for row in together if row.counted]
    if not (table.axis and rows):
        return None
    axis = axis_that_varies(table, table.axis)
    lines = []
    for line in named_lines(table, together, axis):
        if len([row for row in line.rows if row.counted]) > 1:
            lines.append(line)
    if not axis or not lines:
        return None
    panels: list[Panel] = []
    notes: list[str] = []
    multiples = _multiples(table, lines, notes)
    specs = {spec.name: spec.setting.family for spec in table.varied_specs}
    plotted = plotted_measures(table, rows) + plotted_of_question(table, rows, {axis, specs.get(axis, axis)})
    if len(multiples) == 1:
        plotted += plotted_memory(rows)
    for item in plotted:
        for title, shown in multiples:
            panels += _panel(item, axis, shown, title)
    if not panels:
        return None
    title = f"{describe_panels(panels)} against {axis}"
    return Chart(name="answer", title=title, panels=panels, notes=tuple(dict.fromkeys(notes)))


def describe_panels(panels: Sequence[Panel]) -> str:
    """What panels show: `Throughput, test accuracy and tensor memory`."""
    labels = [panel.y.label.partition(" (")[0].removesuffix(" of a rank") for panel in panels]
    *names, last = dict.fromkeys(labels)
    subject = f"{', '.join(names)} and {last}" if names else last
    return f"{subject[:1].upper()}{subject[1:]}"


def _multiples(table: Table, lines: Sequence[Line], notes: list[str]) -> list[tuple[str, list[Line]]]:
    """The lines of each panel of a measure, with its title: all in one, or one for each value of another field."""
    if len(lines) <= MOST_LINES:
        return [("", list(lines))]
    firsts = [line.rows[0] for line in lines]
    rest = differing_fields(table, firsts)
    if lines[0].axis in rest:
        rest.remove(lines[0].axis)
    field = min(rest, key=lambda name: (name == _TUNED, count_values(firsts, name)))
    rest.remove(field)
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


def _panel(plotted: Plotted, axis: str, lines: Sequence[Line], title: str) -> list[Panel]:
    rows = rows_of(lines)
    x = factor_axis(lines) if has_numbers(rows, axis) else category_axis(axis, rows)
    measured: list[Series] = []
    lost: list[Series] = []
    for line in lines:
        points = [(_place(row, axis, x), row) for row in line.rows]
        measured += plotted.series(line.name, points, connected=not x.categories)
        lost += lost_crosses(line.name, points)
    if not measured:
        return []
    tuned: list[Series] = []
    if plotted.metric.endswith("accuracy") and any(_TUNED in row.factors for row in rows) and axis != _TUNED:
        tuned = _tuned(plotted, lines, x)
    y = Axis(plotted.label, from_zero=plotted.from_zero)
    return [Panel(x=x, y=y, series=[*measured, *lost, *tuned], title=title)]


def _tuned(plotted: Plotted, lines: Sequence[Line], x: Axis) -> list[Series]:
    """At each value of the axis the trial with the best learning rate, with this rate as its text."""
    best: dict[float | str, Trial] = {}
    for row in rows_of(lines):
        level = row.value_of(plotted.metric)
        place = _place(row, lines[0].axis, x)
        if level is not None and (place not in best or level > (best[place].value_of(plotted.metric) or 0.0)):
            best[place] = row
    if len(best) < 2:
        return []
    places = sorted(best, key=str)
    if not x.categories:
        places.sort(key=float)
    found = plotted.series(f"best {_TUNED}", [(place, best[place]) for place in places])
    texts = [f"{_TUNED} {format_factor(best[place].factors[_TUNED])}" for place in places]
    return [replace(item, texts=texts, connected=not x.categories) for item in found]


def _place(row: Trial, axis: str, x: Axis) -> float | str:
    value = row.factors[axis]
    return format_factor(value) if x.categories else value
