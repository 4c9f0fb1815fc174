"""What each change does that was made alone: a category for each change, and the baseline as a line."""

from __future__ import annotations

from dataclasses import replace

from dmls_ray.analysis.figures.answer import MOST_LINES, describe_panels
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.drawn_trials import limit_items
from dmls_ray.analysis.figures.series import (
    Line,
    Plotted,
    lines_of_groups,
    lost_crosses,
    plotted_measures,
    plotted_of_question,
    trained_together,
)
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.axis import group_by_other_factors
from dmls_ray.analysis.trials.trial import describe_changes, name_of_change
from dmls_ray.config.grid import BASELINE


def chart(table: Table) -> Chart | None:
    """The figure; None where nothing was changed one at a time, or no trial with a change was measured."""
    rows = trained_together(table)
    changed = [row for row in rows if describe_changes(row, table.changed)]
    measured = [row for row in changed if row.counted]
    if not measured:
        return None
    groups = group_by_other_factors(rows, table.changed)
    lines = lines_of_groups(table, groups, table.changed, lambda row: name_of_change(row, table.changed))
    lines, notes = limit_items(lines, "groups of changes", MOST_LINES)
    plotted = plotted_measures(table, measured) + plotted_of_question(table, measured, table.asked)
    plotted.sort(key=lambda item: not item.metric)  # what was learned, then the speed
    x = Axis("change", categories=list(dict.fromkeys(name_of_change(row, table.changed) for row in changed)))
    panels = []
    for item in plotted:
        series: list[Series] = []
        for line in lines:
            series += _series(line, item, x)
        panels.append(Panel(x=x, y=item.on(from_zero=False).y, series=series))
    about = f"The line, and the area around it, are the {BASELINE} and its interval."
    title = f"{describe_panels(panels)} by change"
    return Chart(name="changes", title=title, panels=panels, notes=[about, *notes])


def _series(line: Line, plotted: Plotted, x: Axis) -> list[Series]:
    """The changes of a line as points, and its baseline as a line with its interval."""
    points = [(change, row) for change, row in line.points if change != BASELINE]
    series = [*plotted.series(line.name, points), *lost_crosses(line.name, points)]
    bases = [(change, row) for change, row in line.points if change == BASELINE]
    name = ", ".join(filter(None, [BASELINE, line.title]))
    for base in plotted.series(name, bases, kind="line", dashed=True, same_as=line.name):
        ends = [base.points[0]._replace(x=x.categories[end]) for end in (0, -1)]
        series.append(replace(base, points=ends))
    return series
