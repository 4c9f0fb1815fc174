"""Figures: each module makes the `Chart` of one figure from the table of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.table.model import Table

_MODULES = (
    "critical_batch",
    "answer",
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
    figures = [*table.presentation.figures.values(), *FIGURES.values()]
    return [chart for make_chart in figures if (chart := make_chart(table)) is not None]
