"""Throughput and efficiency against ranks, with the ideal and the fitted scaling laws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.lines import Line, factor_axis, lines_along
from dmls_ray.analysis.figures.series import limit_items, line_series, oom_crosses, rows_with_any
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, estimate
from dmls_ray.analysis.stats.scaling_laws import Fit, Points, Refusal, fits
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row

_CURVE_POINTS = 25


Fitting = Callable[..., Sequence[Fit | Refusal]]
"""As `fits`."""


def chart(table: Table, fitting: Fitting = fits) -> Chart | None:
    """The figure; None if no two trials with a rate differ only in world_size.

    Without a measured world size 1 there is no ideal, no efficiency and no fit.

    Args:
        table: table of the sweep.
        fitting: function that fits laws to the speed-ups of each line.
    """
    rows = rows_with_any(table.rows, ["images_per_s"])
    lines, notes = limit_items(lines_along(table, rows, "world_size"), "lines")
    lines = [line for line in lines if any(row.rates() for row in line.rows)]
    if not lines:
        return None
    throughput: list[Series] = []
    efficiency: list[Series] = []
    strong = table.fixed_batch_field == "global_batch"
    refused: list[str] = []
    for line in lines:
        speed_ups = _speed_ups(line)
        laws = fitting(speed_ups, strong=strong) if speed_ups else []
        drawn = [law for law in laws if isinstance(law, Fit) and law.curve(1).low is not None]
        refused += [_why_not(law) for law in laws if law not in drawn]
        throughput += _throughput(line, drawn)
        efficiency += _efficiency(line, drawn)
    x = factor_axis(lines)
    sizes = _ends([row for line in lines for row in line.rows])
    panels = [Panel(x=x, y=Axis("throughput (images/s)", log=x.log, from_zero=True), series=throughput)]
    if efficiency:
        efficiency.append(_ideal(sizes, [1.0, 1.0]))
        panels.append(Panel(x=x, y=Axis("efficiency (speed-up / ranks)", from_zero=True), series=efficiency))
    scaling = "strong" if strong else "weak"
    return Chart(
        name="scaling",
        title=f"Throughput and efficiency against ranks ({scaling} scaling)",
        panels=panels,
        notes=(*notes, *dict.fromkeys(refused)),
    )


def _throughput(line: Line, laws: Sequence[Fit]) -> list[Series]:
    points = line_series(line, Row.rates)
    if not points:
        return []
    series = [*points, *oom_crosses(line)]
    base = _base(line)
    if base is not None:
        rate, sizes = estimate(list(base.rates().values())).median, _ends(line.rows)
        series.append(_ideal(sizes, [rate * size for size in sizes], same_as=line.name))
        series += _fitted(line, laws, lambda speed_up, size: speed_up * rate)
    return series


def _efficiency(line: Line, laws: Sequence[Fit]) -> list[Series]:
    base = _base(line)
    if base is None:
        return []
    rates = base.rates()

    def by_block(row: Row) -> Mapping[int, float]:
        row_rates = row.rates()
        blocks = sorted(row_rates.keys() & rates.keys())
        return {block: row_rates[block] / rates[block] / row.world_size for block in blocks}

    return [*line_series(line, by_block), *_fitted(line, laws, lambda speed_up, size: speed_up / size)]


def _fitted(line: Line, laws: Sequence[Fit], scaled: Callable[[float, float], float]) -> list[Series]:
    """Each law as a curve with its interval, over the range of measured world sizes.

    Args:
        line: the trials.
        laws: laws fitted to the trials.
        scaled: function of a speed-up and its world size; returns the value in the panel.
    """
    least, most = _ends(line.rows)
    sizes = [least + (most - least) * step / (_CURVE_POINTS - 1) for step in range(_CURVE_POINTS)]
    series = []
    for law in laws:
        values = [(law.curve(size), size) for size in sizes]
        middle = [scaled(value.median, size) for value, size in values]
        series.append(Series(name=law.name, kind="line", x=sizes, y=middle, dashed=True, same_as=line.name))
        low = [scaled(value.low, size) for value, size in values if value.low is not None]
        high = [scaled(value.high, size) for value, size in values if value.high is not None]
        name = f"{law.name}, 95%"
        series.append(Series(name=name, kind="band", x=sizes, y=[], low=low, high=high, same_as=line.name))
    return series


def _why_not(law: Fit | Refusal) -> str:
    """The reason why a law is not drawn; without an interval no law is drawn."""
    reason = law.reason if isinstance(law, Refusal) else f"it has no interval with fewer than {MIN_REPEATS} blocks"
    return f"No curve by {law.name}: {reason}."


def _speed_ups(line: Line) -> Points:
    """world_size -> block -> speed-up over world size 1 in that block; empty if world size 1 was not measured."""
    base = _base(line)
    rates = base.rates() if base is not None else {}
    points = {}
    for row in line.rows:
        by_block = {block: rate / rates[block] for block, rate in row.rates().items() if block in rates}
        if by_block and row.world_size > 1:
            points[row.world_size] = by_block
    return points


def _base(line: Line) -> Row | None:
    """The baseline: world size 1 without DDP, if it was measured."""
    return next((row for row in line.rows if row.world_size == 1 and row.rates()), None)


def _ends(rows: Sequence[Row]) -> tuple[int, int]:
    sizes = [row.world_size for row in rows if row.rates()]
    return min(sizes), max(sizes)


def _ideal(sizes: Sequence[int], values: Sequence[float], same_as: str = "") -> Series:
    return Series(name="ideal", kind="line", x=sizes, y=values, dashed=True, same_as=same_as)
