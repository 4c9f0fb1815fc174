from __future__ import annotations

import pytest

from dmls_ray.analysis.figures.chart import Axis, Panel, Series


def test_a_panel_has_either_a_picture_or_series() -> None:
    assert Panel(picture="/9j/AAAA", title="seen").series == ()
    with pytest.raises(ValueError, match="a picture and 'a'"):
        Panel(picture="/9j/AAAA", series=[Series(name="a", x=[1], y=[1.0])])


def test_bars_need_categories() -> None:
    bar = Series(name="a", kind="bar", x=["x"], y=[1.0])
    assert Panel(x=Axis("way", categories=["x"]), y=Axis("s"), series=[bar]).series == [bar]
    with pytest.raises(ValueError, match="the bars of 'a' need categories on the x axis"):
        Panel(x=Axis("way"), y=Axis("s"), series=[bar])


def test_bars_alone_are_stacked_and_on_a_linear_axis_alone() -> None:
    x, bar = Axis("way", categories=["x"]), Series(name="a", kind="bar", x=["x"], y=[1.0])
    assert Panel(x=x, series=[bar], stacked=True).stacked
    for series, y in ((Series(name="a", x=["x"], y=[1.0]), Axis("s")), (bar, Axis("s", log=True))):
        with pytest.raises(ValueError, match="'a' cannot be stacked"):
            Panel(x=x, y=y, series=[series], stacked=True)
