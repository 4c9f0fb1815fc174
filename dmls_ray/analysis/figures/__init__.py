"""Figures: each module makes the `Chart` of one figure from the table of a sweep."""

from __future__ import annotations

from collections.abc import Callable

from dmls_ray.analysis.figures import (
    batch,
    communication,
    learning,
    memory,
    rank_spread,
    scaling,
    step_times,
    tradeoff,
    utilization,
)
from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.table.model import Table

FIGURES: dict[str, Callable[[Table], Chart | None]] = {
    "tradeoff": tradeoff.chart,
    "scaling": scaling.chart,
    "batch": batch.chart,
    "memory": memory.chart,
    "learning": learning.chart,
    "communication": communication.chart,
    "step_times": step_times.chart,
    "rank_spread": rank_spread.chart,
    "utilization": utilization.chart,
}
"""Name -> function that makes the chart, in the order of a report. A new figure needs its module and an entry here."""


def charts(table: Table) -> list[Chart]:
    """The charts of all figures for which the table has values; those of its workload come first."""
    figures = [*table.presentation.figures.values(), *FIGURES.values()]
    return [chart for make_chart in figures if (chart := make_chart(table)) is not None]
