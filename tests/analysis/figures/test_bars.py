from __future__ import annotations

import math

import pytest

from dmls_ray.analysis.figures.bars import bar_axis_end, bar_base, bar_bases, bar_offsets
from dmls_ray.analysis.figures.chart import Axis, Panel, Series

NAMES = ["a", "b", "c"]


def panel(*series: Series, log: bool = False) -> Panel:
    return Panel(x=Axis("way", categories=NAMES), y=Axis("time (ms)", log=log), series=series)


def bar(name: str, x: list[str], y: list[float | None], **ends: list[float | None]) -> Series:
    return Series(name=name, kind="bar", x=x, y=y, **ends)  # type: ignore[arg-type]


def test_a_bar_alone_in_its_category_is_centred_at_full_width() -> None:
    width, middles = bar_offsets(panel(bar("one", ["a", "c"], [1.0, 2.0]), bar("other", ["b"], [3.0])))
    assert width == 0.8
    assert middles == {("one", ""): [0, 0], ("other", ""): [0]}


def test_bars_at_one_name_stand_side_by_side_and_one_alone_in_the_middle() -> None:
    width, middles = bar_offsets(panel(bar("one", ["a", "b"], [1.0, 2.0]), bar("other", ["b"], [3.0])))
    assert width == 0.4
    assert middles == {("one", ""): [0, -0.2], ("other", ""): [0.2]}


def test_a_bar_without_a_value_takes_no_width() -> None:
    width, middles = bar_offsets(
        panel(bar("one", ["a"], [1.0]), bar("other", ["a"], [None]), bar("third", ["a"], [math.nan]))
    )
    assert width == 0.8
    assert middles == {("one", ""): [0], ("other", ""): [0], ("third", ""): [0]}


def test_points_among_bars_take_no_width() -> None:
    assert bar_offsets(panel(bar("one", ["a"], [1.0]), Series(name="limit", x=["a"], y=[2.0]))) == (
        0.8,
        {("one", ""): [0]},
    )


def test_bars_begin_at_zero_and_on_a_logarithmic_axis_at_the_power_of_ten_below_the_least() -> None:
    assert bar_base(panel(bar("one", ["a"], [30.0]))) == 0
    assert bar_base(panel(bar("one", ["a", "b"], [30.0, 412.0]), log=True)) == 10
    assert bar_base(panel(bar("one", ["a"], [30.0], low=[2.0], high=[40.0]), log=True)) == 1
    assert bar_base(panel(bar("one", ["a"], [30.0]), Series(name="limit", x=["a"], y=[0.05]), log=True)) == 0.01
    assert bar_base(panel(bar("one", ["a"], [0.001]), log=True)) == pytest.approx(1e-4), (
        "a bar that is there has a height"
    )


def test_what_a_logarithmic_axis_cannot_show_moves_no_foot() -> None:
    assert (
        bar_base(panel(bar("one", NAMES, [30.0, 0.0, None], low=[-1.0, None, None], high=[31.0, 1, 1]), log=True))
        == 0.1
    )
    assert bar_base(panel(bar("one", ["a"], [None]), log=True)) == 0.1
    assert bar_base(panel(bar("one", ["a"], [5e-324]), log=True)) > 0


def test_a_logarithmic_axis_ends_above_its_highest_value() -> None:
    assert 1000 < bar_axis_end(panel(bar("one", ["a"], [30.0], low=[2.0], high=[1000.0]), log=True)) < 2000
    assert bar_axis_end(panel(bar("one", ["a"], [None]), log=True)) > 0.1
    assert math.isfinite(bar_axis_end(panel(bar("one", ["a", "b"], [1.0, 1e300]), log=True)))
    assert math.isfinite(bar_axis_end(panel(bar("one", ["a", "b"], [5e-324, 1.7e308]), log=True)))
    assert bar_base(panel(bar("one", ["a"], [5e-324]), log=True)) < bar_axis_end(
        panel(bar("one", ["a"], [5e-324]), log=True)
    )


def test_stacked_bars_stand_on_each_other_at_full_width() -> None:
    parts = [bar("low", ["a", "b"], [1.0, 2.0]), bar("middle", ["b"], [None]), bar("high", ["a", "b"], [4.0, 5.0])]
    stacked = Panel(x=Axis("way", categories=NAMES), series=parts, stacked=True)
    assert bar_offsets(stacked) == (0.8, {("low", ""): [0, 0], ("middle", ""): [0], ("high", ""): [0, 0]})
    assert bar_bases(stacked) == {("low", ""): [0, 0], ("middle", ""): [2.0], ("high", ""): [1.0, 2.0]}


def test_bars_side_by_side_begin_where_the_axis_does() -> None:
    assert bar_bases(panel(bar("one", ["a", "b"], [30.0, 412.0]), log=True)) == {("one", ""): [10, 10]}
