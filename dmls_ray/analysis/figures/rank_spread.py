"""Differences between the ranks of a run: stragglers, and ranks that need more memory."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.drawn_trials import limit_rows
from dmls_ray.analysis.figures.series import dashed_line, measured_series
from dmls_ray.analysis.memory import MEMORY, memory_metric
from dmls_ray.analysis.metrics import is_time
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial

_TIMES = {"median optimizer step": ("step_ms_p50",), "computation of a pass": ("forward_ms", "backward_ms")}


def chart(table: Table) -> Chart | None:
    """The figure; None if no counted run has two ranks with a value.

    Each rank is compared with the mean over the ranks of its run, so that trials of different speed are comparable.
    Ranks wait for each other at every step, so a slow rank shows in its computation earlier than in its steps.
    """
    shown: dict[str, tuple[str, ...]] = dict(_TIMES)
    memory = memory_metric(table.rows)
    if memory:
        shown[MEMORY[memory]] = (memory,)
    several = [row for row in table.rows if row.world_size > 1 and row.counted]
    rows, notes = limit_rows(table, several, lambda row: any(by_rank(row, metrics) for metrics in shown.values()))
    if not rows:
        return None
    x = Axis("rank", categories=[str(rank) for rank in range(max(row.world_size for row in rows.values()))])
    mean = dashed_line("mean over ranks", [(x.categories[0], 0.0), (x.categories[-1], 0.0)])
    panels = []
    for label, metrics in shown.items():
        series: list[Series] = []
        for name, row in rows.items():
            points = [(str(rank), row, values) for rank, values in by_rank(row, metrics).items()]
            series += measured_series(name, points, quantity="value")
        if series:
            panels.append(Panel(x=x, y=Axis(f"{label} (% above mean over ranks)"), series=[*series, mean]))
    return Chart(name="rank_spread", title="Spread over ranks", panels=panels, notes=notes)


def by_rank(row: Trial, metrics: tuple[str, ...]) -> Mapping[int, Mapping[int, float]]:
    """rank -> block -> % of the sum of some metrics above the mean over the ranks of the run.

    Only runs with at least two values count, and for times only those in bench mode.
    """
    by_block: dict[int, dict[int, float]] = {}
    for record in row.timed if is_time(metrics[0]) else row.counted:
        values = {}
        for rank in record.ranks:
            if rank.metrics.keys() >= {*metrics}:
                values[rank.rank] = sum(rank.metrics[name] for name in metrics)
        mean = statistics.fmean(values.values()) if len(values) > 1 else 0.0
        if mean:
            for number, value in values.items():
                by_block.setdefault(number, {})[record.repeat] = 100 * (value - mean) / mean
    return dict(sorted(by_block.items()))
