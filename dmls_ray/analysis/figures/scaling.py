"""Throughput and efficiency against ranks, with the ideal and the fitted scaling laws."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Point, Series
from dmls_ray.analysis.figures.series import (
    Line,
    Plotted,
    dashed_line,
    lost_crosses,
    measured_series,
    metric_lines,
)
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, estimate
from dmls_ray.analysis.stats.scaling_laws import Fit, Points, Refusal, fits
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial

_CURVE_POINTS = 25


def scaling_chart(table: Table) -> Chart | None:
    """The figure; None if no two trials with a rate differ only in world_size.

    Without a measured world size 1 there is no ideal, no efficiency and no fit.
    """
    rates = Plotted(Axis("throughput (images/s)", from_zero=True), Trial.rates, quantity="rate")
    x, lines, notes = metric_lines(table, rates, "world_size")
    throughput: list[Series] = []
    efficiency: list[Series] = []
    strong = table.fixed_batch_field == "global_batch"
    refused: dict[str, None] = {}
    for line in lines:
        throughput += rates.series(line.name, line.points, connected=True)
        throughput += lost_crosses(line.name, line.points)
        base = next((row for row in line.rows if row.world_size == 1 and row.rates()), None)
        if base is None:
            continue
        speed_ups = _speed_ups(line, base)
        above_one = {size: by_block for size, by_block in speed_ups.items() if by_block and size > 1}
        drawn = []
        for law in fits(above_one, strong=strong) if above_one else ():
            if isinstance(law, Fit) and law.curve(1).low is not None:
                drawn.append(law)
            else:
                refused[_why_not(law)] = None

        rate = estimate(list(base.rates().values()), "rate").centre
        sizes = [row.world_size for row in line.rows if row.rates()]
        throughput.append(dashed_line("ideal", [(size, rate * size) for size in (sizes[0], sizes[-1])], line.name))
        throughput += _fitted(line, drawn, sizes, rate)
        points = []
        for row in line.rows:
            by_block = {block: ratio / row.world_size for block, ratio in speed_ups[row.world_size].items()}
            points.append((row.world_size, row, by_block))
        efficiency += measured_series(line.name, points, quantity="ratio", connected=True)
        efficiency += _fitted(line, drawn, sizes)
    if not any(series.kind == "points" for series in throughput):
        return None
    panels = [Panel(x=x, y=Axis(rates.y.label, log=x.log, from_zero=True), series=throughput)]
    if efficiency:
        ends = [point.x for series in efficiency for point in series.points]
        efficiency.append(dashed_line("ideal", [(min(ends), 1.0), (max(ends), 1.0)]))
        panels.append(Panel(x=x, y=Axis("efficiency (speed-up / ranks)", from_zero=True), series=efficiency))
    title = f"Throughput and efficiency against ranks ({'strong' if strong else 'weak'} scaling)"
    return Chart(name="scaling", title=title, panels=panels, notes=[*notes, *refused])


def _fitted(line: Line, laws: Sequence[Fit], sizes: Sequence[int], rate: float | None = None) -> list[Series]:
    """Each law as a curve with its interval, over the range of measured world sizes.

    Args:
        line: the trials.
        laws: laws fitted to the trials.
        sizes: the measured world sizes.
        rate: throughput of the baseline; None: the curves are of efficiency.
    """
    least, most = sizes[0], sizes[-1]
    series = []
    for law in laws:
        points = []
        for step in range(_CURVE_POINTS):
            size = least + (most - least) * step / (_CURVE_POINTS - 1)
            value = law.curve(size)
            factor = 1 / size if rate is None else rate
            low, high = (value.low or 0.0) * factor, (value.high or 0.0) * factor
            points.append(Point(size, value.centre * factor, low, high))
        series.append(Series(law.name, points, "line", dashed=True, same_as=line.name))
    return series


def _why_not(law: Fit | Refusal) -> str:
    """The reason why a law is not drawn; without an interval no law is drawn."""
    reason = law.reason if isinstance(law, Refusal) else f"it has no interval with fewer than {MIN_REPEATS} blocks"
    return f"No curve by {law.name}: {reason}."


def _speed_ups(line: Line, base: Trial) -> Points:
    """world_size -> block -> speed-up over the baseline, world size 1 without DDP, in that block.

    As in the table, only blocks in which both ran in the same environment count.
    """
    rates, speed_ups = base.rates(), {}
    for row in line.rows:
        common = row.common_blocks(base) & rates.keys()
        ratios = {block: rate / rates[block] for block, rate in row.rates().items() if block in common}
        speed_ups[row.world_size] = ratios
    return speed_ups
