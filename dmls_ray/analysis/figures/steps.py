"""Where the time of optimizer steps goes: `step_parts`, `communication`, `step_times` and `rank_spread`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Point, Series
from dmls_ray.analysis.figures.drawn_trials import limit_rows
from dmls_ray.analysis.figures.series import (
    Plotted,
    batch_axis,
    dashed_line,
    line_panel,
    lines_or_categories,
    measured_series,
    run_ids,
    stacked_panels,
)
from dmls_ray.analysis.memory import MEMORY, memory_metric
from dmls_ray.analysis.metrics import is_time
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.steps import PARTS, bounds_of, step_parts
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import join_names
from dmls_ray.records.epoch_and_rank import STEP_QUANTILES, RankRecord

_MOST_LINES = 4
"""Lines of trials that have a panel of the parts of their steps."""
_FAR = 10
"""Slowest by fastest step, from which on the axis is logarithmic."""

_BOUNDS = {
    "input": "waiting for data",
    "communication": "communication and waiting for other ranks",
    "launch": "what a step takes at any batch (launch-bound)",
    "compute": "computing",
    "compute or launch": "computing, or what a step takes at any batch (not distinguished)",
}


def step_parts_chart(table: Table) -> Chart | None:
    """The parts of an optimizer step in each trial, as stacked bars; None if fewer than two trials have them."""
    measured = {row.trial_id: known for row in table.rows if (known := step_parts(row))}
    rows = [row for row in table.rows if row.trial_id in measured]
    if len(rows) < 2:
        return None
    parts = {}
    for name, words in PARTS.items():
        if any(item[name] > 0 for item in measured.values()):
            parts[words] = lambda row, name=name: measured[row.trial_id][name]
    y = Axis("time of an optimizer step (ms)", from_zero=True)
    panels, notes = stacked_panels(table, rows, y, parts, _MOST_LINES)
    bounds = bounds_of(table.rows, table.varied, table.fixed_batch_field)
    for bound, words in _BOUNDS.items():
        bounded = [describe_configuration(row.factors) for row in rows if bounds[row.trial_id] == bound]
        if bounded:
            notes.append(f"Bound by {words}: {join_names(bounded)}.")
    return Chart(name="step_parts", title="Where an optimizer step goes", panels=panels, notes=notes)


def communication_chart(table: Table) -> Chart | None:
    """Exposed communication as a fraction of a pass, and the fraction of communication that computation hides.

    None if fewer than two trials have DDP's timers, as at world size 1. The x axis is the first of world_size, the
    batch and the varied fields along which two trials can be joined, but none that was changed in one trial alone.
    """
    rows = [row for row in table.rows if _by_block(row, _exposed)]
    if len(rows) < 2:
        return None
    fields = ["world_size", batch_axis(table), *table.varied]
    fields = [field for field in fields if field not in table.changed]
    x, lines, notes = lines_or_categories(table, rows, fields)
    panels: list[Panel] = []
    for label, share in (
        ("exposed communication (fraction of a pass)", _exposed),
        ("hidden communication (fraction of communication)", _hidden),
    ):
        plotted = Plotted(Axis(label, from_zero=True), partial(_by_block, share=share), quantity="share")
        panels += line_panel(plotted, x, lines)
    return Chart(name="communication", title="Communication of gradients", panels=panels, notes=notes)


def _exposed(metrics: Mapping[str, float]) -> float:
    exposed = metrics["exposed_comm_ms"]
    return exposed / (exposed + metrics.get("forward_ms", 0.0) + metrics.get("backward_ms", 0.0))


def _hidden(metrics: Mapping[str, float]) -> float:
    return metrics.get("overlap_ms", 0.0) / metrics["comm_ms"]


def _by_block(row: Trial, share: Callable[[Mapping[str, float]], float]) -> Mapping[int, float]:
    """A share by block, over the timed runs whose ranks have DDP's timers.

    It is that of the rank with the least exposed communication: in that of the others is their wait for slower ranks.
    """
    shares = {}
    for record in row.timed:
        ranks = [rank.metrics for rank in record.ranks if _has_timers(rank)]
        if ranks:
            shares[record.repeat] = share(min(ranks, key=lambda metrics: metrics["exposed_comm_ms"]))
    return shares


def _has_timers(rank: RankRecord) -> bool:
    return "exposed_comm_ms" in rank.metrics and bool(rank.metrics.get("comm_ms"))


def step_times_chart(table: Table) -> Chart | None:
    """Which share of the optimizer steps was done in so many milliseconds.

    None where no run whose times count has quantiles of its steps.
    """
    rows, notes = limit_rows(table, [row for row in table.rows if row.timed], lambda row: bool(_quantiles(row)))
    if not rows:
        return None
    series = []
    times: list[float] = []
    for name, row in rows.items():
        runs = run_ids(row.timed)
        points = []
        for share, value in zip(STEP_QUANTILES, _quantiles(row), strict=True):
            points.append(Point(value, share, runs=runs, text=f"{share:.0%} of the steps"))
            times.append(value)
        series.append(Series(name, points, connected=True))
    x = Axis("optimizer step (ms)", log=max(times) > _FAR * min(times) > 0)
    panel = Panel(x=x, y=Axis("steps done by then (fraction)", from_zero=True), series=series)
    notes.append("At each share the median over all ranks of all runs of a trial.")
    title = "Time of an optimizer step: empirical distribution"
    return Chart(name="step_times", title=title, panels=[panel], notes=notes)


def _quantiles(row: Trial) -> Sequence[float]:
    """Milliseconds at each of `STEP_QUANTILES`, the median over the ranks of the runs; empty without step times."""
    ranks = [rank for record in row.timed for rank in record.ranks if rank.step_ms_quantiles]
    return [statistics.median(values) for values in zip(*(rank.step_ms_quantiles for rank in ranks), strict=True)]


def rank_spread_chart(table: Table) -> Chart | None:
    """Differences between the ranks of a run: stragglers, and ranks that need more memory.

    None if no counted run has two ranks with a value. Each rank is compared with the mean over the ranks of its run,
    so that trials of different speed are comparable. Ranks wait for each other at every step, so a slow rank shows in
    its computation earlier than in its steps.
    """
    shown: dict[str, tuple[str, ...]] = {
        "median optimizer step": ("step_ms_p50",),
        "computation of a pass": ("forward_ms", "backward_ms"),
    }
    memory = memory_metric(table.rows)
    if memory:
        shown[MEMORY[memory]] = (memory,)
    several = [row for row in table.rows if row.world_size > 1 and row.counted]
    rows, notes = limit_rows(table, several, lambda row: any(_by_rank(row, metrics) for metrics in shown.values()))
    if not rows:
        return None
    x = Axis("rank", categories=[str(rank) for rank in range(max(row.world_size for row in rows.values()))])
    mean = dashed_line("mean over ranks", [(x.categories[0], 0.0), (x.categories[-1], 0.0)])
    panels = []
    for label, metrics in shown.items():
        series: list[Series] = []
        for name, row in rows.items():
            points = [(str(rank), row, values) for rank, values in _by_rank(row, metrics).items()]
            series += measured_series(name, points, quantity="value")
        if series:
            panels.append(Panel(x=x, y=Axis(f"{label} (% above mean over ranks)"), series=[*series, mean]))
    return Chart(name="rank_spread", title="Spread over ranks", panels=panels, notes=notes)


def _by_rank(row: Trial, metrics: tuple[str, ...]) -> Mapping[int, Mapping[int, float]]:
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
