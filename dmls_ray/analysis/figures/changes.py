"""What each change does that was made alone: a category for each change, and the baseline as a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmls_ray.analysis.figures.answer import MOST_LINES, describe_panels
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.plotted import Plotted, plotted_measures, plotted_of_question
from dmls_ray.analysis.figures.series import (
    SINGLE_LINE,
    differing_fields,
    limit_items,
    lost_crosses,
    trained_together,
    trial_label,
)
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.groups import group_by_other_factors
from dmls_ray.analysis.trials.labels import describe_changes
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.config.grid import BASELINE


def chart(table: Table) -> Chart | None:
    """The figure; None where nothing was changed one at a time, or no trial with a change was measured."""
    rows = trained_together(table)
    changes = list(dict.fromkeys(change for row in rows if (change := describe_changes(row, table.changed))))
    measured = [row for row in rows if row.counted and describe_changes(row, table.changed)]
    if not table.changed or not measured:
        return None
    groups, notes = limit_items(group_by_other_factors(rows, table.changed), "groups of changes", MOST_LINES)
    speed_last = sorted(plotted_measures(table, measured), key=lambda item: not item.metric)
    results = [item for item in speed_last if item.metric]
    plotted = [*results, *plotted_of_question(table, measured, table.asked), *speed_last[len(results) :]]
    x = Axis("change", categories=changes)
    panels = [Panel(x=x, y=Axis(item.label), series=_series(table, groups, item, x)) for item in plotted]
    return Chart(
        name="changes", title=f"{describe_panels(panels)} by change", panels=panels,
        notes=(f"The line, and the area around it, are the {BASELINE} and its interval.", *notes),
    )  # fmt: skip


def _series(table: Table, groups: Sequence[Sequence[Trial]], plotted: Plotted, x: Axis) -> list[Series]:
    """The changes of each group as points, and its baseline as a line with its interval."""
    series: list[Series] = []
    names = [name for name in differing_fields(table, [group[0] for group in groups]) if name not in table.changed]
    for group in groups:
        place = trial_label(group[0], names)
        name = place or SINGLE_LINE
        changed = [(change, row) for row in group if (change := describe_changes(row, table.changed))]
        series += [*plotted.series(name, changed), *lost_crosses(name, changed)]
        bases = [(BASELINE, row) for row in group if not describe_changes(row, table.changed)]
        for measured in plotted.series(name, bases):
            series += _across(measured, ", ".join(filter(None, [BASELINE, place])), x)
    return series


def _across(measured: Series, name: str, x: Axis) -> list[Series]:
    """One point as a line over all categories, with its interval."""
    ends = [x.categories[0], x.categories[-1]]
    line = replace(
        measured, name=name, same_as=measured.name, kind="line", dashed=True, x=ends, y=[*measured.y] * 2,
        low=(), high=(), runs=[*measured.runs] * 2, texts=[*measured.texts] * 2,
    )  # fmt: skip
    band = replace(line, kind="band", dashed=False, y=[None] * 2, low=[*measured.low] * 2, high=[*measured.high] * 2)
    return [line, band]
