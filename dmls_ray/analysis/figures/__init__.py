"""Figures: each file works out one, as a `Chart`, from the trials of a sweep."""

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
from dmls_ray.analysis.table.row import Table

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
"""Name -> what works it out; what a reader asks first comes first."""


def charts(table: Table) -> list[Chart]:
    """All figures that these trials have something to show in."""
    figures = [*table.presentation.figures.values(), *FIGURES.values()]
    return [chart for work_out in figures if (chart := work_out(table)) is not None]
