"""Figures: a function for each makes its `Chart` from the table of a sweep. A module has the functions of a theme."""

from __future__ import annotations

from collections.abc import Callable

from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.figures.learning import critical_batch_chart, learning_chart, tradeoff_chart
from dmls_ray.analysis.figures.performance import memory_chart, scaling_chart, step_parts_chart
from dmls_ray.analysis.figures.question import answer_chart, changes_chart, search_chart
from dmls_ray.analysis.table.model import Table

_LEADING = ("search", "changes", "answer")
"""Figures on the question of a sweep: a report begins with the first of them that has something to show, unless a
figure of the workload is on its question.
"""

FIGURES: dict[str, Callable[[Table], Chart | None]] = {
    "critical_batch": critical_batch_chart,
    "search": search_chart,
    "changes": changes_chart,
    "answer": answer_chart,
    "tradeoff": tradeoff_chart,
    "scaling": scaling_chart,
    "memory": memory_chart,
    "learning": learning_chart,
    "step_parts": step_parts_chart,
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
    return found
