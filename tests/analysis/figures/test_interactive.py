from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.interactive import plotly_figure
from dmls_ray.analysis.figures.plotly_text import plain, rounded
from tests.conftest import jpeg

X, Y = Axis("batch_per_rank", log=True), Axis("images/s", from_zero=True)


def one(*series: Series, x: Axis = X, y: Axis = Y) -> Chart:
    return Chart(name="c", title="A chart", panels=[Panel(x=x, y=y, series=series)])


def points(name: str = "world_size 1", **changes: Any) -> Series:
    return Series(**({"name": name, "x": [16, 32, 64], "y": [1.0, 2.0, 3.0]} | changes))


def trace(*series: Series, **axes: Axis) -> dict[str, Any]:
    return plotly_figure(one(*series, **axes))["data"][-1]


def test_a_chart_is_plain_values_that_json_can_hold() -> None:
    drawn = plotly_figure(one(points(low=[0.5, None, 2.5], high=[1.5, None, 3.5], runs=[("a-0", "a-1"), ("b-0",), ()])))
    assert json.loads(json.dumps(drawn, allow_nan=False)) == drawn


def test_log_axes_have_a_tick_at_each_value_that_was_measured() -> None:
    axis = plotly_figure(one(points()))["layout"]["xaxis"]
    assert (axis["type"], axis["tickvals"]) == ("log", [16, 32, 64])


def test_many_or_crowded_values_leave_the_ticks_to_plotly() -> None:
    many = points(x=list(range(1, 21)), y=[1.0] * 20)
    crowded = points(x=[1.0, 1.001, 100.0])
    assert "tickvals" not in plotly_figure(one(many))["layout"]["xaxis"]
    for axis in (Axis("MiB", log=True), Axis("MiB"), Axis("MiB", from_zero=True)):
        assert "tickvals" not in plotly_figure(one(crowded, x=axis))["layout"]["xaxis"]
    far = points(x=[1000, 1001, 1002])
    assert "tickvals" in plotly_figure(one(far, x=Axis("pixels")))["layout"]["xaxis"]
    assert "tickvals" not in plotly_figure(one(far, x=Axis("pixels", from_zero=True)))["layout"]["xaxis"]


def test_a_long_label_goes_over_several_lines() -> None:
    label = "exposed communication (fraction of a pass)"
    title = plotly_figure(one(points(), y=Axis(label)))["layout"]["yaxis"]["title"]["text"]
    assert title.split("<br>") == ["exposed communication (fraction of a", "pass)"]


def test_an_axis_that_is_to_show_zero_does() -> None:
    layout = plotly_figure(one(points(), y=Axis("s")))["layout"]
    assert layout["yaxis"]["rangemode"] == "normal"
    assert plotly_figure(one(points()))["layout"]["yaxis"]["rangemode"] == "tozero"


def test_names_keep_their_order_and_are_never_joined() -> None:
    series = points(x=["gloo", "nccl"], y=[1.0, 2.0], connected=True)
    drawn = plotly_figure(one(series, x=Axis("backend", categories=["nccl", "mpi", "gloo"])))
    assert drawn["layout"]["xaxis"]["categoryarray"] == ["nccl", "mpi", "gloo"]
    assert drawn["data"][0]["mode"] == "markers"


def test_an_interval_reaches_from_low_to_high_and_is_left_out_where_it_is_not_known() -> None:
    bars = trace(points(y=[1.0, 2.0, None], low=[0.5, None, 1.0], high=[1.25, None, 2.0]))["error_y"]
    assert (bars["arrayminus"], bars["array"]) == ([0.5, 0, 0], [0.25, 0, 0])


def test_a_band_is_a_polygon_for_each_stretch_that_is_known() -> None:
    band = Series(
        name="fit", kind="band", x=[1, 2, 3, 4, 5], y=[None] * 5,
        low=[1.0, 2.0, None, 4.0, 5.0], high=[2.0, 3.0, None, 5.0, 6.0],
    )  # fmt: skip
    drawn = trace(band)
    assert drawn["x"] == [1, 2, 2, 1, None, 4, 5, 5, 4, None]
    assert drawn["y"] == [2, 3, 2, 1, None, 5, 6, 5, 4, None]
    assert drawn["fill"] == "toself"


def test_a_band_lies_under_its_curve_and_has_no_legend_entry() -> None:
    curve = points("fit", kind="line")
    band = Series(name="interval", kind="band", x=[1, 2], y=[None] * 2, low=[0, 0], high=[1, 1], same_as="fit")
    under, over = plotly_figure(one(curve, band))["data"]
    assert (under["fill"], under["showlegend"]) == ("toself", False)
    assert (over["mode"], over["showlegend"]) == ("lines", True)
    assert under["meta"]["colour"] == over["meta"]["colour"]


def test_a_run_without_a_value_is_a_cross_at_the_foot_of_its_panel() -> None:
    drawn = plotly_figure(one(points(), Series(name="oom", kind="cross", x=[128], y=[None], runs=[("c-0",)])))
    cross = drawn["data"][1]
    assert cross["marker"]["symbol"] == "x-thin"
    assert cross["yaxis"] == "y2"
    assert drawn["layout"]["yaxis2"]["overlaying"] == "y"
    assert "%{y}" not in cross["hovertemplate"]


def test_a_lower_limit_is_an_open_triangle() -> None:
    drawn = plotly_figure(one(points(), Series(name="at least", kind="bound", x=[128], y=[8.0], same_as="fp32")))
    assert drawn["data"][1]["marker"]["symbol"] == "triangle-up-open"
    assert drawn["data"][1]["mode"] == "markers"


def test_a_cross_that_has_a_place_keeps_it() -> None:
    drawn = plotly_figure(one(Series(name="oom", kind="cross", x=[128], y=[8.0])))
    assert (drawn["data"][0]["y"], drawn["data"][0]["yaxis"]) == ([8], "y")


def test_what_was_not_measured_is_dashed() -> None:
    assert trace(points(kind="line", dashed=True))["line"]["dash"] == "dash"
    assert trace(points(connected=True))["line"]["dash"] == "solid"


def test_a_series_that_copies_another_has_its_colour_and_mark_and_remains_distinguishable() -> None:
    like, first, other = plotly_figure(one(points("test", same_as="train"), points("train"), points("else")))["data"]
    assert first["meta"]["colour"] == like["meta"]["colour"] != other["meta"]["colour"]
    assert (first["marker"]["symbol"], like["marker"]["symbol"]) == ("circle", "circle-open")


def test_panels_stand_side_by_side_and_share_one_legend() -> None:
    panel = Panel(x=X, y=Y, series=[points("a"), points("b")], title="left")
    drawn = plotly_figure(Chart(name="c", title="t", panels=[panel, panel]))
    assert [item["xaxis"] for item in drawn["data"]] == ["x", "x", "x2", "x2"]
    assert [item["showlegend"] for item in drawn["data"]] == [True, True, False, False]
    assert (drawn["layout"]["xaxis"]["anchor"], drawn["layout"]["yaxis2"]["anchor"]) == ("y", "x2")
    assert drawn["layout"]["annotations"][1]["xref"] == "x2 domain"


def test_points_know_their_runs_and_say_how_many() -> None:
    drawn = trace(points(runs=[("a-0", "a-1"), ("b-0",), ()], texts=["", "fast", ""]))
    assert drawn["meta"]["runs"] == [["a-0", "a-1"], ["b-0"], []]
    assert drawn["text"] == ["<br><i>click: 2 runs</i>", "<br>fast<br><i>click: its run</i>", ""]


def test_the_runs_of_a_curve_are_named_once() -> None:
    assert trace(points(runs=[("a-0",)] * 3))["meta"]["all_runs"] == ["a-0"]


def test_no_label_is_read_as_a_tag_a_link_or_a_template() -> None:
    bad = '<a href="javascript:x">%{y} & $x$'
    drawn = plotly_figure(
        Chart(name="c", title=bad, panels=[
            Panel(
                x=Axis(bad, categories=[bad]), y=Axis(bad), title=bad,
                series=[Series(name=bad, x=[bad], y=[1.0], texts=[bad], runs=[("a",)])],
            )
        ])
    )  # fmt: skip
    text = json.dumps(drawn)
    assert "<a" not in text
    assert "%{y} &" not in text
    assert plain("<b>&") == "&lt;b&gt;&amp;"


def test_numbers_are_as_long_as_a_page_shows_them() -> None:
    assert [rounded(value) for value in (0.123456789, 131072.0, 131072, "x", None, True)] == [
        0.12346, 131072, 131072, "x", None, True,
    ]  # fmt: skip
    assert rounded(math.nan) is None
    assert rounded(math.inf) is None


def test_a_value_that_is_not_finite_is_a_gap() -> None:
    assert trace(points(y=[1.0, math.nan, math.inf]))["y"] == [1, None, None]


def test_what_two_lines_have_of_one_name_has_their_colours_and_one_entry_without_a_colour() -> None:
    lines = [points(name, connected=True) for name in ("small", "large")]
    out = [Series(name="oom", kind="cross", x=[128], y=[None], same_as=line.name) for line in lines]
    data = plotly_figure(one(*lines, *out))["data"]
    crosses = [item for item in data if item["name"] == "oom"]
    assert [item["meta"]["colour"] for item in crosses] == [None, 0, 1]
    assert [item["showlegend"] for item in crosses] == [True, False, False]
    assert crosses[0]["x"] == [None]


def test_places_on_a_curve_are_rings_and_what_stands_back_is_muted() -> None:
    curve, ring, back = plotly_figure(one(points("a", connected=True), points("best"), points("rest", muted=True)))[
        "data"
    ]
    assert (curve["meta"]["colour"], ring["meta"]["colour"], back["meta"]["colour"]) == (0, None, None)
    assert ring["marker"]["size"] > back["marker"]["size"] == curve["marker"]["size"]
    assert ring["marker"]["symbol"] == back["marker"]["symbol"] == "circle-open"


WAYS = Axis("way", categories=["loop", "numpy", "torch"])


def bar(name: str, x: list[str], y: list[float | None], **changes: Any) -> Series:
    return Series(name=name, kind="bar", x=x, y=y, **changes)


def test_a_bar_stands_in_the_middle_of_its_name_with_its_interval_and_its_runs() -> None:
    ends: dict[str, Any] = {"low": [3.0], "high": [6.0], "runs": [("a-0", "a-1")]}
    one, other = plotly_figure(Chart(name="c", title="t", panels=[
        Panel(x=WAYS, y=Y, series=[bar("a", ["loop"], [4.0], **ends), bar("b", ["torch", "numpy"], [2.0, None])])
    ]))["data"]  # fmt: skip
    assert (one["type"], one["x"], one["y"], one["width"], one["offset"]) == ("bar", ["loop"], [4], 0.8, [-0.4])
    assert (one["error_y"]["arrayminus"], one["error_y"]["array"]) == ([1], [2])
    assert one["meta"] == {"colour": 0, "runs": [["a-0", "a-1"]]}
    assert (other["y"], other["width"], other["offset"], other["meta"]["colour"]) == ([2, None], 0.8, [-0.4, -0.4], 1)
    assert "pattern" not in other["marker"]
    assert "2 runs" in one["text"][0]
    assert one["textposition"] == "none", "what hovering says is not written on the bar"


def test_bars_at_one_name_stand_side_by_side_and_differ_in_their_patterns_too() -> None:
    one, other = plotly_figure(one_of(bar("a", ["loop", "numpy"], [4.0, 1.0]), bar("b", ["loop"], [2.0])))["data"]
    assert (one["offset"], other["offset"], one["width"]) == ([-0.4, -0.2], [0], 0.4)
    assert ("pattern" in one["marker"], other["marker"]["pattern"]["shape"]) == (False, "/")


def test_what_bars_of_two_series_have_of_one_name_has_one_entry_in_the_legend() -> None:
    both = [bar("first", ["loop"], [4.0]), bar("second", ["numpy"], [4.0])]
    more = [
        bar("again", [name], [2.0], same_as=series.name) for name, series in zip(["loop", "numpy"], both, strict=True)
    ]
    entry, *bars = [item for item in plotly_figure(one_of(*both, *more))["data"] if item["name"] == "again"]
    assert (entry["type"], entry["x"], entry["showlegend"]) == ("bar", [None], True)
    assert [(item["showlegend"], item["opacity"] < 1) for item in bars] == [(False, True)] * 2


def test_a_logarithmic_axis_under_bars_begins_at_a_power_of_ten() -> None:
    series = bar("a", ["loop", "numpy"], [412.0, 3.1], low=[20.0, 2.0], high=[500.0, 4.0])
    low, high = plotly_figure(one_of(series, y=Axis("t (ms)", log=True)))["layout"]["yaxis"]["range"]
    assert low == 0
    assert math.log10(500) < high < 3
    assert "range" not in plotly_figure(one_of(series))["layout"]["yaxis"]
    assert "range" not in plotly_figure(one(points(), y=Axis("t (ms)", log=True)))["layout"]["yaxis"]


def test_a_stacked_bar_stands_on_those_before_it_and_shows_its_own_size() -> None:
    parts = [bar("a", ["loop", "numpy"], [4.0, 1.0]), bar("b", ["loop"], [2.0])]
    chart = Chart(name="c", title="t", panels=[Panel(x=WAYS, y=Y, series=parts, stacked=True)])
    one, other = plotly_figure(chart)["data"]
    assert (one["base"], one["offset"], other["base"], other["offset"]) == ([0, 0], [-0.4, -0.4], [4], [-0.4])
    assert other["customdata"] == [2]
    assert "%{customdata:,.5~r}" in other["hovertemplate"]


def one_of(*series: Series, y: Axis = Y) -> Chart:
    return one(*series, x=WAYS, y=y)


def test_a_picture_is_next_to_other_panels_without_axes_or_a_legend_entry() -> None:
    panels = [Panel(x=X, y=Y, series=[points()]), Panel(picture=jpeg(), title="seen <here>")]
    drawn = plotly_figure(Chart(name="c", title="t", panels=panels))
    assert drawn["data"][1] == {
        "type": "image", "source": f"data:image/jpeg;base64,{jpeg()}", "xaxis": "x2", "yaxis": "y2", "zsmooth": "fast",
        "hoverinfo": "skip", "showlegend": False, "meta": {"colour": None},
    }  # fmt: skip
    x, y = (drawn["layout"][f"{letter}axis2"] for letter in "xy")
    assert (x["visible"], y["visible"]) == (False, False)
    assert y["scaleanchor"] == "x2", "it keeps its form"
    assert y["autorange"] == "reversed", "its first row is on top"
    (heading,) = drawn["layout"]["annotations"]
    assert (heading["text"], heading["xref"]) == ("seen &lt;here&gt;", "x2 domain")
    assert drawn["layout"]["showlegend"] is False
    assert json.loads(json.dumps(drawn, allow_nan=False)) == drawn


@pytest.mark.parametrize("picture", [jpeg(2000, 10), "/9j/AAAA"])
def test_a_picture_that_is_none_or_too_large_is_said_to_be_in_its_place(picture: str) -> None:
    drawn = plotly_figure(
        Chart(name="c", title="t", panels=[Panel(x=X, y=Y, series=[points()]), Panel(picture=picture)])
    )
    assert picture not in json.dumps(drawn)
    (assigned,) = drawn["layout"]["annotations"]
    assert assigned["text"].replace("<br>", " ").startswith("This picture is not shown: it is no JPEG of at most 1,024")
    assert assigned["xref"] == "x2 domain"
    assert drawn["data"][1]["xaxis"] == "x2", "what keeps the place"


def test_drawing_for_a_page_loads_no_plotly() -> None:
    code = "import sys, dmls_ray.analysis.figures.interactive; print('plotly' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_legend_is_shown_for_several_names_only() -> None:
    def legend(count: int) -> bool:
        return bool(plotly_figure(one(*(points(f"s{number}") for number in range(count))))["layout"]["showlegend"])

    assert [legend(count) for count in (1, 2, 20, 21)] == [False, True, True, False]
