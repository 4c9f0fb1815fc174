"""Figures: a function for each makes its `Chart` from the table of a sweep. A module has the functions of a theme."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dmls_ray.analysis.figures import learning, performance, question, ranks
from dmls_ray.analysis.figures.chart import Chart, rounded
from dmls_ray.analysis.figures.series import span_of
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.presentation import Presentation
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
    found = []
    is_answered = False
    of_workload = Presentation.of_trials(table.rows).figures
    for name, make_chart in {**of_workload, **FIGURES}.items():
        if name in _LEADING and is_answered:
            continue
        chart = make_chart(table)
        if chart is not None:
            found.append(replace(chart, notes=[*chart.notes, *_notes_on_marks(chart)]))
            is_answered |= name in _LEADING or name in of_workload
    return found


def _notes_on_marks(chart: Chart) -> list[str]:
    """What error bars and bands are, which lines have equal values, and how many points are hidden."""
    notes = _notes_on_intervals(chart)
    lines: dict[str, list[str]] = defaultdict(list)
    hidden = []
    for panel in chart.panels:
        x, y = (axis.label.partition(" (")[0] for axis in (panel.x, panel.y))
        by_points: dict[Any, list[str]] = defaultdict(list)
        covered = 0
        for series in panel.series:
            if series.kind == "points":
                seen = [(_seen(point.x), _seen(point.y)) for point in series.points]
                by_points[tuple(seen)].append(series.name)
                covered += len(seen) - len(set(seen))
        for names in by_points.values():
            if len(names) > 1:
                lines[join_names(names)].append(y)
        if covered:
            hidden.append(f"{covered} ({y} against {x})")
    if lines:
        equal = [f"{names} ({', '.join(labels)})" for names, labels in lines.items()]
        notes.append(f"Equal values: {'. '.join(equal)}.")
    if hidden:
        notes.append(f"Points hidden under equal ones: {'; '.join(hidden)}.")
    return notes


def _notes_on_intervals(chart: Chart) -> list[str]:
    """What error bars and bands of measured values are; a fitted curve has no runs, and a note of its figure."""
    names: dict[str, None] = {}
    sizes: set[int] = set()
    without = ""
    for panel in chart.panels:
        for series in panel.series:
            counts = {len(point.runs) for point in series.points if point.low is not None and point.runs}
            if counts:
                names["bands" if series.intervals == "band" else "error bars"] = None
                sizes |= counts
                if any(point.low is None and point.runs for point in series.points):
                    without = " A point without one has no interval."
    if not names:
        return []
    marks = " and ".join(names).capitalize()
    return [f"{marks} are 95% intervals over the {span_of(sizes)} runs of a trial.{without}"]


def _seen(value: float | str | None) -> float | str | None:
    """A value to the digits that a figure shows."""
    return rounded(value, _SEEN_DIGITS) if isinstance(value, (int, float)) else value
