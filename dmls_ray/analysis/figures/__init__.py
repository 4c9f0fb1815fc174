"""Figures: a function for each makes its `Chart` from the table of a sweep. A module has the functions of a theme."""

from __future__ import annotations

from collections.abc import Callable

from dmls_ray.analysis.figures import learning, performance, question, ranks
from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.table.model import Table

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
    return found
