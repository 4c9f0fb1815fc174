"""What the ranks of a run measured: times of their steps, how they differ, and how busy processor and GPU were."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean, median

import numpy as np

from dmls_ray.analysis.figures.chart import Chart, Panel, PlotAxis, PlotSeries, Point, SeriesKind
from dmls_ray.analysis.figures.series import SINGLE_LINE, limit_items, run_ids, trial_labels
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import STEP_QUANTILES

_Curves = Mapping[str, Callable[[Trial], list[Point]]]


def step_times_chart(table: Table) -> Chart | None:
    """Empirical distribution of the times of optimizer steps; None if no run in bench mode has their quantiles."""
    x = PlotAxis("optimizer step (ms)", log=True)
    about = "Each point is the median over all ranks of all runs of a trial."
    return _chart(table, "step_times", "Times of steps", x, {"steps within this time (fraction)": _steps}, about)


def _steps(row: Trial) -> list[Point]:
    """The share of steps that took at most so many milliseconds."""
    measured = [rank.step_ms_quantiles for record in row.timed for rank in record.ranks if rank.step_ms_quantiles]
    points = []
    for share, values in zip(STEP_QUANTILES, zip(*measured, strict=False), strict=False):
        points.append(Point(median(values), share, runs=run_ids(row.timed), text=f"{share:.0%} of the steps"))
    return points


def rank_spread_chart(table: Table) -> Chart | None:
    """How far each rank is from the mean over the ranks of its run; None if no run in bench mode has two ranks."""
    ranks = max((row.world_size for row in table.rows), default=0)
    x = PlotAxis("rank", categories=[str(rank) for rank in range(ranks)])
    curves = {
        "forward pass (% above mean over ranks)": partial(_spread, metric="forward_ms"),
        "backward pass (% above mean over ranks)": partial(_spread, metric="backward_ms"),
        "memory of the GPU (% above mean over ranks)": partial(_spread, metric="device_mem_mib"),
    }
    about = "Ranks wait for each other at every step, so a slow rank makes the steps of all ranks equally long."
    return _chart(table, "rank_spread", "Spread over ranks", x, curves, about)


def _spread(row: Trial, metric: str) -> list[Point]:
    """A metric of each rank, in % above the mean over the ranks of its run."""
    by_rank: dict[int, list[float]] = {}
    for record in row.timed:
        amounts = {rank.rank: rank.metrics[metric] for rank in record.ranks if metric in rank.metrics}
        if len(amounts) < 2 or not fmean(amounts.values()):
            continue
        mean = fmean(amounts.values())
        for rank, amount in amounts.items():
            by_rank.setdefault(rank, []).append(100 * (amount / mean - 1))
    points = []
    for rank, spread in sorted(by_rank.items()):
        value = estimate(spread)
        points.append(Point(str(rank), value.centre, value.low, value.high, run_ids(row.timed), f"n={value.n}"))
    return points


def utilization_chart(table: Table) -> Chart | None:
    """Utilization over time; None if no run in bench mode was sampled twice, as one of less than a second."""
    x = PlotAxis("time since the start of a run (s)", from_zero=True)
    curves = {
        "CPU utilization (% of a core)": partial(_samples, quantity="cpu_percent"),
        "GPU utilization (%)": partial(_samples, quantity="gpu_percent"),
    }
    about = "A line is the mean over the ranks of all runs of a trial. It ends where the shortest run ends."
    return _chart(table, "utilization", "Utilization over time", x, curves, about, "line")


def _samples(row: Trial, quantity: str) -> list[Point]:
    """The means over the ranks while all of them were in training, at the longest period of any.

    The slowest run would be the last one, so that the mean over the rest of the runs would be that of a slow run.
    Ranks that were sampled once, or never, say nothing of a course.
    """
    courses = []
    for record in row.timed:
        for rank in record.ranks:
            times, values = rank.utilization.get("at_s", []), rank.utilization.get(quantity, [])
            # After the time of the run only instruments are at work, such as the test on the training samples.
            count = bisect_right(times, record.metrics.get("total_s", math.inf))
            if min(count, len(values)) > 1:
                courses.append((times[:count], values[:count]))
    if not courses:
        return []
    begin = max(times[0] for times, _ in courses)
    end = min(times[-1] for times, _ in courses)
    period = max((times[-1] - times[0]) / (len(times) - 1) for times, _ in courses)
    if begin >= end:
        return []
    at_s = np.linspace(begin, end, 1 + max(1, round((end - begin) / period)))
    means = np.mean([np.interp(at_s, times, values) for times, values in courses], axis=0)
    return [Point(round(float(place), 2), float(mean)) for place, mean in zip(at_s, means, strict=True)]


def _chart(
    table: Table, name: str, title: str, x: PlotAxis, curves: _Curves, about: str, kind: SeriesKind = "points"
) -> Chart | None:
    """A panel for each quantity, with a series for each trial that has it; None without any.

    Args:
        table: table of the sweep.
        name: name of the chart.
        title: title of the chart.
        x: the x axis.
        curves: label of a y axis -> the points of a trial.
        about: the note below the chart.
        kind: how the values are drawn.
    """
    measured = [row for row in table.rows if any(curve(row) for curve in curves.values())]
    rows, notes = limit_items(measured, "trials")
    panels = []
    for label, curve in curves.items():
        series = []
        for trial, row in zip(trial_labels(table, rows), rows, strict=True):
            points = curve(row)
            if points:
                series.append(PlotSeries(trial or SINGLE_LINE, points, kind, connected=not x.categories))
        if series:
            panels.append(Panel(x=x, y=PlotAxis(label, from_zero=True), series=series))
    return Chart(name=name, title=title, panels=panels, notes=[about, *notes]) if panels else None
