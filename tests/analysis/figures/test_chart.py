from __future__ import annotations

import pytest

from dmls_ray.analysis.figures.chart import Axis, Panel, Series


def test_a_picture_has_no_series_beside_it() -> None:
    assert Panel(picture="/9j/AAAA", title="seen").series == ()
    with pytest.raises(ValueError, match="'a' is beside a picture"):
        Panel(picture="/9j/AAAA", series=[Series(name="a", x=[1], y=[1.0])])


def test_bars_stand_on_names_alone() -> None:
    bar = Series(name="a", kind="bar", x=["x"], y=[1.0])
    assert Panel(x=Axis("way", categories=["x"]), y=Axis("s"), series=[bar]).series == [bar]
    with pytest.raises(ValueError, match="'a' needs categories on the x axis"):
        Panel(x=Axis("way"), y=Axis("s"), series=[bar])
