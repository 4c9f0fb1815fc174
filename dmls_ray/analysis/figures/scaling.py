"""Throughput and efficiency against ranks, with the ideal and what was fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.lines import Line, factor_axis, few, lines_along, measured, ooms, told
from dmls_ray.analysis.stats import Estimate, estimate
from dmls_ray.analysis.tables import Row, Table

_CURVE_POINTS = 25


class Fit(Protocol):
    """A law of scaling, fitted to one line's rates."""

    @property
    def name(self) -> str: ...

    def curve(self, world_size: float) -> Estimate:
        """The speed-up against world size 1."""
        ...


Fitting = Callable[[Mapping[int, Mapping[int, float]]], Sequence[Fit]]
"""From rates, world_size -> block -> images_per_s, to what could be fitted to them."""


def no_fits(points: Mapping[int, Mapping[int, float]]) -> Sequence[Fit]:
    """Fits nothing."""
    return ()


def chart(table: Table, fitting: Fitting = no_fits) -> Chart | None:
    """The figure; None where no two trials with a rate differ in world_size alone.

    Without a measured world size 1 there is no ideal, no efficiency and no fit.

    Args:
        table: the sweep's table.
        fitting: what fits curves to the rates of each line.
    """
    rows = told(table.rows, ["images_per_s"])
    lines, notes = few(lines_along(table, rows, "world_size"), "lines")
    lines = [line for line in lines if any(row.rates() for row in line.rows)]
    if not lines:
        return None
    throughput: list[Series] = []
    efficiency: list[Series] = []
    for line in lines:
        throughput += _throughput(line, fitting)
        efficiency += _efficiency(line, fitting)
    x = factor_axis("world_size", [row for line in lines for row in line.rows])
    sizes = _ends([row for line in lines for row in line.rows])
    panels = [Panel(x=x, y=Axis("throughput (images/s)", log=x.log, from_zero=True), series=throughput)]
    if efficiency:
        efficiency.append(_ideal(sizes, [1.0, 1.0]))
        panels.append(Panel(x=x, y=Axis("efficiency (speed-up / ranks)", from_zero=True), series=efficiency))
    scaling = "strong" if table.held == "global_batch" else "weak"
    return Chart(
        name="scaling",
        title=f"Throughput and efficiency against ranks ({scaling} scaling)",
        panels=panels,
        notes=notes,
    )


def _throughput(line: Line, fitting: Fitting) -> list[Series]:
    points = measured(line.name, [(row.world_size, row, row.rates()) for row in line.rows], connected=True)
    if points is None:
        return []
    series = [points, *ooms(line, lambda row: row.world_size)]
    base = _base(line)
    if base is not None:
        rate, sizes = estimate(list(base.rates().values())).median, _ends(line.rows)
        series.append(_ideal(sizes, [rate * size for size in sizes], same_as=line.name))
        series += _fitted(line, fitting, lambda speed_up, size: speed_up * rate)
    return series


def _efficiency(line: Line, fitting: Fitting) -> list[Series]:
    base = _base(line)
    if base is None:
        return []
    rates = base.rates()

    def by_block(row: Row) -> Mapping[int, float]:
        mine = row.rates()
        return {block: mine[block] / rates[block] / row.world_size for block in sorted(mine.keys() & rates.keys())}

    points = measured(line.name, [(row.world_size, row, by_block(row)) for row in line.rows], connected=True)
    assert points is not None, line.name  # world size 1 is on the line itself
    return [
        points,
        *_fitted(line, fitting, lambda speed_up, size: speed_up / size),
    ]


def _fitted(line: Line, fitting: Fitting, scaled: Callable[[float, float], float]) -> list[Series]:
    """Each fit as a curve with its interval, over the world sizes that were measured.

    Args:
        line: the trials.
        fitting: what fits to them.
        scaled: from a speed-up and its world size to the panel's value.
    """
    least, most = _ends(line.rows)
    sizes = [least + (most - least) * step / (_CURVE_POINTS - 1) for step in range(_CURVE_POINTS)]
    series = []
    for fit in fitting({row.world_size: row.rates() for row in line.rows if row.rates()}):
        values = [(fit.curve(size), size) for size in sizes]
        middle = [scaled(value.median, size) for value, size in values]
        series.append(Series(name=fit.name, kind="line", x=sizes, y=middle, dashed=True, same_as=line.name))
        low = [scaled(value.low, size) for value, size in values if value.low is not None]
        high = [scaled(value.high, size) for value, size in values if value.high is not None]
        if len(low) == len(high) == len(sizes):
            name = f"{fit.name}, 95%"
            series.append(Series(name=name, kind="band", x=sizes, y=[], low=low, high=high, same_as=line.name))
    return series


def _base(line: Line) -> Row | None:
    """World size 1 without DDP, where it was measured."""
    return next((row for row in line.rows if row.world_size == 1 and row.rates()), None)


def _ends(rows: Sequence[Row]) -> tuple[int, int]:
    sizes = [row.world_size for row in rows if row.rates()]
    return min(sizes), max(sizes)


def _ideal(sizes: Sequence[int], values: Sequence[float], same_as: str = "") -> Series:
    return Series(name="ideal", kind="line", x=sizes, y=values, dashed=True, same_as=same_as)
