"""Figures: each module makes the `Chart` of one figure from the table of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.table.model import Table

_LEADING = ("search", "changes", "answer")
"""Figures on the question of a sweep: a report begins with the first of them that has something to show, unless a
figure of the workload is on its question.
"""

_MODULES = (
    "critical_batch",
    *_LEADING,
    "tradeoff",
    "scaling",
    "batch",
    "memory",
    "learning",
    "step_parts",
    "communication",
    "step_times",
    "rank_spread",
    "utilization",
)
"""In the order of a report. A new figure needs its module and its name here."""

FIGURES: dict[str, Callable[[Table], Chart | None]] = {
    name: import_module(f"{__name__}.{name}").chart for name in _MODULES
}
"""Name -> function that makes the chart."""


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
