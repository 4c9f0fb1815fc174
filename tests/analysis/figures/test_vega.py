from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dmls_ray import load
from dmls_ray.analysis.figures import FIGURES, charts
from dmls_ray.analysis.figures.chart import Chart, Panel, PlotAxis, PlotSeries, Point
from dmls_ray.analysis.figures.drawn import drawings, save
from dmls_ray.analysis.figures.style import CROSS, LIGHT, PAGE, Styles
from dmls_ray.analysis.figures.vega import vega_lite
from dmls_ray.analysis.summary import summarize
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import results
from tests.conftest import PROJECT, jpeg

REFERENCE = PROJECT / "results" / "reference"

WAYS = PlotAxis("way", categories=["loop", "numpy", "torch"])
SAMPLES = [Point(16, 1.0), Point(32, 2.0), Point(64, 3.0)]


def everything() -> dict[str, Chart]:
    """A chart of every figure, of the committed sweeps and of a search."""
    found = {}
    for folder in ("critical_batch", "regularization", "cifar10_convnet", "optimizer", "quantization", "grayscale"):
        for chart in charts(summarize(load(REFERENCE / folder)).table):
            found[chart.name] = chart
    searched = results({"optimizer": ["adam", "sgd"], "batch_per_rank": 16}, lambda values, repeat: 1.0)
    for chart in charts(make_table(searched, best_by=("test_accuracy", False)))[:1]:
        found[chart.name] = chart
    return found


def texts(path: Path) -> str:
    """All text of an SVG, in one line."""
    return " ".join(" ".join(part.split()) for part in ET.parse(path).getroot().itertext() if part.strip())


def chart_of(*series: PlotSeries, x: PlotAxis | None = None, y: PlotAxis | None = None, stacked: bool = False) -> Chart:
    x, y = x or PlotAxis("batch_per_rank", log=True), y or PlotAxis("peak (MiB)")
    panel = Panel(x=x, y=y, series=series, stacked=stacked)
    return Chart(name="some", title="Some", panels=[panel])


def spec_of(chart: Chart) -> dict[str, Any]:
    return vega_lite(chart, Styles([chart]), LIGHT)


def panel_of(*series: PlotSeries, **changes: Any) -> dict[str, Any]:
    view: dict[str, Any] = spec_of(chart_of(*series, **changes))["concat"][0]
    return view


def marks_of(*series: PlotSeries, **changes: Any) -> list[dict[str, Any]]:
    """The marks of a panel from the lowest to the highest, without that of the legend."""
    return [layer["mark"] for layer in panel_of(*series, **changes)["layer"] if "name" in layer["data"]]


def rows_of(*series: PlotSeries, **changes: Any) -> list[dict[str, Any]]:
    return [row for rows in spec_of(chart_of(*series, **changes))["datasets"].values() for row in rows]


def test_every_figure_is_saved_in_three_formats_that_name_its_axes_with_their_units(tmp_path: Path) -> None:
    found = everything()
    assert found.keys() == {*FIGURES, "quantization", "implementations"}
    paths = save(list(found.values()), tmp_path / "figures")
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in found for kind in ("png", "svg", "pdf")]
    for chart in found.values():
        with Image.open(tmp_path / "figures" / f"{chart.name}.png") as image:
            assert image.format == "PNG"
            assert min(image.size) > 400
        assert (tmp_path / "figures" / f"{chart.name}.pdf").read_bytes().startswith(b"%PDF")
        said = texts(tmp_path / "figures" / f"{chart.name}.svg")
        assert chart.title in said
        for panel in chart.panels:
            assert panel.x.label in said
            assert panel.y.label in said
            if chart.name != "critical_batch" and not panel.picture:
                assert panel.y.label.endswith(")")
                assert panel.x.categories or panel.x.label.endswith(")")
        names = {series.name for panel in chart.panels for series in panel.series}
        assert len(names) == 1 or all(name in said for name in names)
    first, second = (save([found["memory"]], tmp_path / name)[1].read_bytes() for name in ("first", "second"))
    assert first == second, "equal charts are equal files"


def test_a_specification_is_plain_values_that_json_can_hold() -> None:
    points = [Point(16, 1.0, 0.5, 1.5, ("a-0",)), Point(32, math.nan), Point(64, math.inf, 2.5, 3.5)]
    drawn = spec_of(chart_of(PlotSeries("a", points)))
    assert json.loads(json.dumps(drawn, allow_nan=False)) == json.loads(json.dumps(drawn))
    assert [row["y"] for row in rows_of(PlotSeries("a", points))] == [1, None, None]


def test_the_domain_of_a_log_axis_ends_near_its_values_and_ticks_are_where_the_axis_says() -> None:
    x = panel_of(PlotSeries("a", SAMPLES), x=PlotAxis("batch_per_rank", log=True, ticks=[16, 32, 64]))["encoding"]["x"]
    assert (x["scale"]["type"], x["axis"]["values"]) == ("log", [16, 32, 64])
    assert x["axis"]["tickMinStep"] == 1, "none between whole numbers"
    low, high = x["scale"]["domain"]
    assert 12 < low < 16
    assert 64 < high < 80
    assert x["axis"]["labelSeparation"] > 0, "numbers do not touch"
    x = panel_of(PlotSeries("a", SAMPLES[:2]), x=PlotAxis("epoch"))["encoding"]["x"]
    assert x["axis"]["values"] == [16, 32], "few whole numbers have no tick between them"


def test_an_axis_from_zero_begins_there_and_another_one_below_its_values() -> None:
    from_zero = panel_of(PlotSeries("a", SAMPLES), y=PlotAxis("s", from_zero=True))["encoding"]["y"]["scale"]["domain"]
    assert from_zero == [0, pytest.approx(3.15)]
    low, _ = panel_of(PlotSeries("a", [Point(1, 880.0), Point(2, 882.0)]))["encoding"]["y"]["scale"]["domain"]
    assert 879 < low < 880


def test_panels_of_one_quantity_share_their_scale() -> None:
    memory, loss = PlotAxis("memory (MiB)", from_zero=True), PlotAxis("loss (nats)")
    tops = ((memory, 10.0), (loss, 3.0), (memory, 40.0))
    panels = [Panel(y=y, series=[PlotSeries("a", [Point(1, top)])]) for y, top in tops]
    views = spec_of(Chart(name="c", title="t", panels=panels))["concat"]
    first, other, last = (view["encoding"]["y"]["scale"]["domain"] for view in views)
    assert first == last == [0, 42]
    assert other[1] < 7


def test_series_at_the_same_category_do_not_hide_each_other() -> None:
    both = [PlotSeries(name, [Point("0", 1.0)]) for name in ("a", "b")]
    lost = PlotSeries("oom", [Point("0", None)], "cross", same_as="b")
    axis = PlotAxis("rank", categories=["1", "0"])
    panel = panel_of(*both, lost, x=axis)
    assert panel["encoding"]["x"]["scale"]["domain"] == ["1", "0"], "in their order"
    assert panel["layer"][0]["encoding"]["xOffset"]["scale"]["domain"] == ["a", "b"]
    assert {layer["mark"]["type"] for layer in panel["layer"]} == {"point"}, "and never joined"
    assert [row["line"] for row in rows_of(*both, lost, x=axis)] == ["a", "b", "b"], "a cross stands at its line"


@pytest.mark.parametrize(
    ("kind", "count", "marks"),
    [
        ("points", 3, ["errorbar", "line", "point"]),
        ("points", 12, ["area", "line", "point"]),
        ("line", 2, ["area", "line"]),
        ("band", 2, ["area"]),
    ],
)
def test_intervals_of_curves_and_of_many_points_are_an_area_and_of_few_are_bars(
    kind: Any, count: int, marks: list[str]
) -> None:
    series = PlotSeries("a", [Point(x, x, x - 1, x + 1) for x in range(1, count + 1)], kind, connected=kind == "points")
    assert [mark["type"] for mark in marks_of(series)] == marks


def test_of_many_joined_points_some_have_a_mark() -> None:
    for count, shown in ((15, 15), (16, 8), (60, 15)):
        curve = PlotSeries("a", [Point(x, x) for x in range(1, count + 1)], connected=True)
        (svg,) = drawings([chart_of(curve)])
        assert svg.count('aria-roledescription="point"') == shown


def test_category_labels_are_whole_and_turned_where_the_longest_would_meet_its_neighbour() -> None:
    def angle(*names: str) -> int:
        axis = panel_of(PlotSeries("a", [Point(names[0], 1.0)]), x=PlotAxis("way", categories=names))["encoding"]["x"][
            "axis"
        ]
        assert axis["labelLimit"] == 0
        return axis["labelAngle"]

    assert angle("python_loops", "torch_compile", "opencv", "cpp") == -30
    assert angle("loops", "compiled", "opencv", "cpp") == 0


def test_a_single_series_has_a_legend_if_its_name_says_something() -> None:
    assert len(panel_of(PlotSeries("measured", SAMPLES))["layer"]) == 1
    assert len(panel_of(PlotSeries("batch 16", SAMPLES))["layer"]) == 2


def test_a_cross_lies_at_the_upper_edge_with_its_runs_and_reason() -> None:
    lost = PlotSeries("oom", [Point(128, None, runs=("c-0",), text="1 of 3 runs: no room")], "cross")
    *_, cross, _ = panel_of(PlotSeries("a", SAMPLES), lost)["layer"]
    assert (cross["mark"]["shape"], cross["encoding"]["y"]) == (CROSS, {"value": 6})
    *_, row = rows_of(PlotSeries("a", SAMPLES), lost)
    assert (row["text"], row["runs"]) == ("1 of 3 runs: no room", ("c-0",))


def test_stacked_bars_stand_on_each_other_from_zero() -> None:
    parts = [
        PlotSeries("a", [Point("loop", 4.0), Point("numpy", None)], "bar"),
        PlotSeries("b", [Point("loop", 2.0), Point("numpy", 1.0)], "bar"),
    ]
    drawn: dict[str, Any] = {"x": WAYS, "y": PlotAxis("MiB", from_zero=True), "stacked": True}
    ends = {(row["series"], row["x"]): (row.get("foot"), row.get("top")) for row in rows_of(*parts, **drawn)}
    assert ends == {("a", "loop"): (0, 4), ("a", "numpy"): (None, None), ("b", "loop"): (4, 6), ("b", "numpy"): (0, 1)}
    assert panel_of(*parts, **drawn)["encoding"]["y"]["scale"]["domain"] == [0, pytest.approx(6.3)]


def test_on_a_logarithmic_axis_bars_stand_on_a_power_of_ten_where_the_axis_begins() -> None:
    points = [Point("loop", 412.0, 20.0, 500.0), Point("numpy", 3.1, -2.0, 4.0), Point("torch", 0.0)]
    drawn: dict[str, Any] = {"x": WAYS, "y": PlotAxis("t (ms)", log=True)}
    low, high = panel_of(PlotSeries("a", points, "bar"), **drawn)["encoding"]["y"]["scale"]["domain"]
    assert (low, high > 500) == (1, True)
    found = [(row.get("foot"), row.get("top"), row["low"]) for row in rows_of(PlotSeries("a", points, "bar"), **drawn)]
    assert found == [(1, 412, 20), (1, 3.1, 1), (None, None, None)]
    bar, interval = marks_of(PlotSeries("a", points, "bar"), **drawn)
    assert (bar["color"], interval["color"]) == (LIGHT["series0"], LIGHT["ink"]), "what lies within the bar is seen"


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-9, math.inf, 2**63])
def test_no_value_of_a_bar_on_a_logarithmic_axis_breaks_a_figure(value: float, tmp_path: Path) -> None:
    bars = PlotSeries("a", [Point("loop", value), Point("numpy", 3.0)], "bar")
    assert "t (ms)" in texts(save([chart_of(bars, x=WAYS, y=PlotAxis("t (ms)", log=True))], tmp_path)[1])


def test_the_legend_has_each_name_once_measured_first_and_without_a_colour_what_several_lines_share() -> None:
    lines = [PlotSeries(name, SAMPLES, connected=True) for name in ("a", "b")]
    ideals = [PlotSeries("ideal", SAMPLES, "line", dashed=True, same_as=line.name) for line in lines]
    lost = [PlotSeries("oom", SAMPLES, "cross", same_as=line.name) for line in lines]
    rings = [PlotSeries("best", SAMPLES, "ring", same_as=line.name) for line in lines]
    spec = spec_of(chart_of(ideals[0], lines[0], lost[0], lines[1], ideals[1], lost[1], *rings))
    assert spec["usermeta"]["names"] == ["a", "b", "best", "oom", "ideal"]
    legend = spec["concat"][0]["layer"][-1]["encoding"]
    assert legend["stroke"]["scale"]["domain"] == ["a", "b", "best", "oom", "ideal"]
    assert legend["stroke"]["scale"]["range"] == [LIGHT["series0"], LIGHT["series1"], *[LIGHT["muted"]] * 3]
    assert legend["fill"]["scale"]["range"][2] == "transparent", "a ring stays one"


def test_texts_of_users_are_drawn_as_they_are(tmp_path: Path) -> None:
    bad = '<b>& {datum.x} $x$ [0] var(--ink) \\" @ \x1b'
    name = "".join(f"{bad} {letter}" for letter in "xy")
    series = [PlotSeries(end, [Point(bad, 1.0, runs=("a",), text=bad)]) for end in (bad, name)]
    panel = Panel(x=PlotAxis(bad, categories=[bad]), y=PlotAxis(bad), title=bad, series=series)
    chart = Chart(name="c", title=bad, panels=[panel], notes=[bad])
    said = texts(save([chart], tmp_path)[1])
    assert said.count(bad.replace("\x1b", "\\x1b")) > 6
    page = json.dumps(vega_lite(chart, Styles([chart]), PAGE))
    assert "\\u001b" not in page
    assert "#" not in page.replace("$schema", ""), "a page has names of colours"


def test_a_picture_keeps_its_form_beside_axes(tmp_path: Path) -> None:
    bars = chart_of(PlotSeries("a", [Point("loop", 4.0)], "bar"), x=WAYS, y=PlotAxis("t (ms)", log=True)).panels[0]
    chart = Chart(name="seen", title="Seen", panels=[bars, Panel(picture=jpeg(60, 20), title="Colour and grey")])
    _, view = spec_of(chart)["concat"]
    assert view["mark"]["url"] == f"data:image/jpeg;base64,{jpeg(60, 20)}"
    assert view["mark"]["aspect"]
    svg = save([chart], tmp_path)[1]
    assert "<image" in svg.read_text()
    assert "Colour and grey" in texts(svg)
