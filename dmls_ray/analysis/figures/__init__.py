"""Figures: each file works out one, as a `Chart`, from the trials of a sweep."""

from __future__ import annotations

from collections.abc import Callable

from dmls_ray.analysis.figures import (
    batch,
    communication,
    implementations,
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
    "implementations": implementations.chart,
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
    return [chart for work_out in FIGURES.values() if (chart := work_out(table)) is not None]
