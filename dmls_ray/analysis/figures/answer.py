"""What a sweep asks: throughput, accuracy, memory and whatever else its answer compares, against the axis it asks
about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmls_ray.analysis.figures.chart import Chart, Panel
from dmls_ray.analysis.figures.drawn_trials import (
    SINGLE_LINE,
    differing_fields,
    format_factor,
    limit_items,
    trial_label,
)
from dmls_ray.analysis.figures.series import (
    Line,
    line_panel,
    lines_along,
    plotted_measures,
    plotted_metric,
    plotted_of_question,
    trained_together,
)
from dmls_ray.analysis.findings.answer import axis_that_varies
from dmls_ray.analysis.memory import memory_metric
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.axis import count_values

MOST_LINES = 4
"""Lines of a panel; of more, there is a panel for each value of the field with the fewest values."""
_MOST_PANELS = 4
"""Panels of a measure."""


def chart(table: Table) -> Chart | None:
    """The figure; None if no two trials differ only in the axis that the sweep asks about.

    Where only one value of it was measured, the axis is the one that the answer goes along.
    """
    together = trained_together(table)
    rows = [row for row in together if row.counted]
    if not (table.axis and rows):
        return None
    axis = axis_that_varies(table, table.axis)
    x, lines = lines_along(table, together, axis)
    lines = [line for line in lines if len([row for row in line.rows if row.counted]) > 1]
    if not lines:
        return None

    families = {spec.name: spec.setting.family for spec in table.varied_specs}
    plotted = plotted_measures(table, rows) + plotted_of_question(table, rows, {axis, families.get(axis, axis)})
    memory = memory_metric(rows)
    if memory and len(lines) <= MOST_LINES:
        plotted.append(plotted_metric(memory, from_zero=True))
    multiples, notes = _multiples(table, lines, axis)
    panels: list[Panel] = []
    for item in plotted:
        for title, shown in multiples:
            panels += line_panel(item, x, shown, title)
    if not panels:
        return None
    return Chart(name="answer", title=f"{describe_panels(panels)} against {axis}", panels=panels, notes=notes)


def describe_panels(panels: Sequence[Panel]) -> str:
    """What panels show: `Throughput, test accuracy and tensor memory`."""
    labels = [panel.y.label.partition(" (")[0].removesuffix(" of a rank") for panel in panels]
    *names, last = dict.fromkeys(labels)
    subject = f"{', '.join(names)} and {last}" if names else last
    return f"{subject[:1].upper()}{subject[1:]}"


def _multiples(table: Table, lines: Sequence[Line], axis: str) -> tuple[list[tuple[str, list[Line]]], list[str]]:
    """The lines of each panel of a measure with its title: all in one, or one for each value of another field."""
    if len(lines) <= MOST_LINES:
        return [("", list(lines))], []
    firsts = [line.rows[0] for line in lines]
    fields = [name for name in differing_fields(table, firsts) if name != axis]
    field = min(fields, key=lambda name: count_values(firsts, name))
    fields.remove(field)
    by_value: dict[str, list[Line]] = {}
    for line in lines:
        first = line.rows[0]
        title = f"{field} {format_factor(first.factors[field])}"
        by_value.setdefault(title, []).append(replace(line, name=trial_label(first, fields) or SINGLE_LINE))
    return limit_items(list(by_value.items()), f"values of {field}", _MOST_PANELS)
