"""Figures: a function for each makes its `Chart` from the table of a sweep. A module has the functions of a theme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dmls_ray.analysis.figures import learning, performance, question, ranks
from dmls_ray.analysis.figures.chart import Chart, rounded
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.words import join_names

_SEEN_DIGITS = 3
"""Digits of a value that a figure of a few hundred pixels shows."""
_LEADING = ("search", "changes", "answer")
"""Figures on the question of a sweep: a report begins with the first of them that has something to show, unless a
figure of the workload is on its question.
"""

FIGURES: dict[str, Callable[[Table], Chart | None]] = {
    "critical_batch": learning.critical_batch_chart,
    "search": question.search_chart,
    "changes": question.changes_chart,
    "answer": question.answer_chart,
    "tradeoff": learning.tradeoff_chart,
    "scaling": performance.scaling_chart,
    "time": performance.time_chart,
    "memory": performance.memory_chart,
    "learning": learning.learning_chart,
    "step_parts": performance.step_parts_chart,
    "communication": performance.communication_chart,
    "step_times": ranks.step_times_chart,
    "rank_spread": ranks.rank_spread_chart,
    "utilization": ranks.utilization_chart,
}
"""Name of each chart -> the function that makes it, in the order of a report."""


def charts(table: Table) -> list[Chart]:
    """The charts of all figures for which the table has values; those of its workload come first."""
    found = [chart for make_chart in table.presentation.figures.values() if (chart := make_chart(table)) is not None]
    is_answered = bool(found)
    for name, make_chart in FIGURES.items():
        if name in _LEADING and is_answered:
            continue
        chart = make_chart(table)
        if chart is not None:
            found.append(chart)
            is_answered = is_answered or name in _LEADING
    return [replace(chart, notes=[*chart.notes, *_notes_on_marks(chart)]) for chart in found]


def _notes_on_marks(chart: Chart) -> list[str]:
    """What the bars at points are, and which lines lie on top of each other."""
    measured = [series for panel in chart.panels for series in panel.series if series.kind == "points"]
    notes = []
    if any(point.low is not None for series in measured for point in series.points):
        notes.append("Error bars are 95% intervals over the runs of a trial.")
    hidden: dict[str, None] = {}
    for panel in chart.panels:
        by_points: dict[Any, list[str]] = {}
        for series in panel.series:
            if series.kind == "points":
                seen = [(point.x, point.y and rounded(point.y, _SEEN_DIGITS)) for point in series.points]
                by_points.setdefault(tuple(seen), []).append(series.name)
        for names in by_points.values():
            if len(names) > 1:
                hidden[f"{join_names(names)} ({panel.y.label.partition(' (')[0]})"] = None
    if hidden:
        notes.append(f"Lines that coincide: {'; '.join(hidden)}.")
    return notes
