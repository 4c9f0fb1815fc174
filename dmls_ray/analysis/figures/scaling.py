"""Throughput and efficiency against ranks, with the ideal and the fitted scaling laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import (
    Line,
    Point,
    dashed_line,
    factor_axis,
    line_series,
    metric_lines,
    oom_crosses,
    rows_of,
    series_of,
)
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, estimate
from dmls_ray.analysis.stats.scaling_laws import Fit, Points, Refusal, fits
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial

_CURVE_POINTS = 25


def chart(table: Table) -> Chart | None:
    """The figure; None if no two trials with a rate differ only in world_size.

    Without a measured world size 1 there is no ideal, no efficiency and no fit.
    """
    lines, notes = metric_lines(table, ["images_per_s"], "world_size")
    lines = [line for line in lines if any(row.rates() for row in line.rows)]
    if not lines:
        return None
    throughput: list[Series] = []
    efficiency: list[Series] = []
    strong = table.fixed_batch_field == "global_batch"
    refused: list[str] = []
    for line in lines:
        throughput += [*line_series(line, Trial.rates), *oom_crosses(line)]
        base = next((row for row in line.rows if row.world_size == 1 and row.rates()), None)
        if base is None:
            continue

        speed_ups = _speed_ups(line, base)
        above_one = {size: by_block for size, by_block in speed_ups.items() if by_block and size > 1}
        laws = fits(above_one, strong=strong) if above_one else []
        drawn = [law for law in laws if isinstance(law, Fit) and law.curve(1).low is not None]
        refused += [_why_not(law) for law in laws if law not in drawn]

        rate, sizes = estimate(list(base.rates().values())).centre, _ends(line.rows)
        throughput.append(dashed_line("ideal", sizes, [rate * size for size in sizes], line.name))
        throughput += _fitted(line, drawn, rate)
        efficiency += line_series(line, partial(_efficiency, speed_ups))
        efficiency += _fitted(line, drawn)
    x = factor_axis(lines)
    sizes = _ends(rows_of(lines))
    panels = [Panel(x=x, y=Axis("throughput (images/s)", log=x.log, from_zero=True), series=throughput)]
    if efficiency:
        efficiency.append(dashed_line("ideal", sizes, [1.0, 1.0]))
        panels.append(Panel(x=x, y=Axis("efficiency (speed-up / ranks)", from_zero=True), series=efficiency))
    scaling = "strong" if strong else "weak"
    return Chart(
        name="scaling",
        title=f"Throughput and efficiency against ranks ({scaling} scaling)",
        panels=panels,
        notes=(*notes, *dict.fromkeys(refused)),
    )


def _fitted(line: Line, laws: Sequence[Fit], rate: float | None = None) -> list[Series]:
    """Each law as a curve with its interval, over the range of measured world sizes.

    Args:
        line: the trials.
        laws: laws fitted to the trials.
        rate: throughput of the baseline; None: the curves are of efficiency.
    """
    least, most = _ends(line.rows)
    sizes = [least + (most - least) * step / (_CURVE_POINTS - 1) for step in range(_CURVE_POINTS)]
    series = []
    for law in laws:
        points = []
        for size in sizes:
            value = law.curve(size)
            factor = 1 / size if rate is None else rate
            low, high = (value.low or 0.0) * factor, (value.high or 0.0) * factor
            points.append(Point(size, value.centre * factor, low, high))
        series += series_of(law.name, points, kind="line", dashed=True, same_as=line.name)
        series += series_of(f"{law.name}, 95%", points, kind="band", same_as=line.name)
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
        speed_ups[row.world_size] = {
            block: rate / rates[block] for block, rate in row.rates().items() if block in common
        }
    return speed_ups


def _efficiency(speed_ups: Points, row: Trial) -> Mapping[int, float]:
    by_block = speed_ups[row.world_size]
    return {block: by_block[block] / row.world_size for block in sorted(by_block)}


def _ends(rows: Sequence[Trial]) -> tuple[int, int]:
    sizes = [row.world_size for row in rows if row.rates()]
    return min(sizes), max(sizes)
