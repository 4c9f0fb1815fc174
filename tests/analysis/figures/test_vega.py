from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dmls_ray.analysis.figures import FIGURES, changes, charts, search
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.style import CROSS, LIGHT, PAGE, Styles
from dmls_ray.analysis.figures.vega import save, vega_lite
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.epoch_and_rank import STEP_QUANTILES, EpochRecord
from tests.analysis.samples import MACHINE, results
from tests.conftest import jpeg

WAYS = Axis("way", categories=["loop", "numpy", "torch"])


def everything() -> list[Chart]:
    """A sweep that has something to show in every figure."""
    runs = results(
        {"batch_per_rank": [16, 32, 64], "world_size": [1, 2, 4]},
        lambda values, repeat: None if values["batch_per_rank"] == 64 else 100.0 * values["world_size"] + repeat,
        accuracy=lambda values, repeat: 0.9 - 0.001 * values["batch_per_rank"],
    )
    for record in runs.records:
        record.device, record.machine = "cpu", {**MACHINE, "memory_mib": 4096}
        if record.epochs:
            record.metrics["train_loss"] = 1.0
            losses = [{"train_loss": 1 / number, "test_loss": 1.1 / number} for number in (1, 2, 3)]
            record.epochs = [
                EpochRecord(epoch=number, metrics={**values, "test_accuracy": 0.5, "train_accuracy": 0.6})
                for number, values in enumerate(losses, start=1)
            ]
        record.metrics |= {"step_ms_p50": 4.0, "data_wait_ms": 1.0, "forward_ms": 1.0, "backward_ms": 1.0}
        for rank in record.ranks:
            rank.metrics |= {"step_ms_p50": 4.0 + rank.rank, "tensor_mem_mib": 100.0 + rank.rank}
            rank.step_ms_quantiles = [1.0 + place for place in range(len(STEP_QUANTILES))]
            rank.utilization = {"at_s": [0.5, 1.0, 1.5], "cpu_percent": [90.0, 95.0, 99.0]}
            if len(record.ranks) > 1:
                rank.metrics |= {"forward_ms": 1.0, "backward_ms": 2.0}
                rank.metrics |= {"comm_ms": 2.0, "overlap_ms": 1.0, "exposed_comm_ms": 1.0}
                record.metrics["exposed_comm_ms"] = 1.0
    table = make_table(runs)
    table.axis = "batch_per_rank"
    choices = results({"optimizer": ["adam", "sgd"], "batch_per_rank": 16}, lambda values, repeat: 1.0)
    searched = make_table(choices, best_by=("test_accuracy", False))
    changed = make_table(results({"batch_per_rank": 16}, lambda values, repeat: 1.0, variants=({}, {"l1": 0.1})))
    changed.changed = ("l1",)
    leading = [search.chart(searched), changes.chart(changed)]
    return [*filter(None, leading), *charts(table)]


def texts(path: Path) -> str:
    """All text of an SVG, in one line."""
    return " ".join(" ".join(part.split()) for part in ET.parse(path).getroot().itertext() if part.strip())


def chart_of(*series: Series, x: Axis | None = None, y: Axis | None = None, stacked: bool = False) -> Chart:
    panel = Panel(x=x or Axis("batch_per_rank", log=True), y=y or Axis("peak (MiB)"), series=series, stacked=stacked)
    return Chart(name="some", title="Some", panels=[panel])


def spec_of(chart: Chart) -> dict[str, Any]:
    return vega_lite(chart, Styles([chart]), LIGHT)


def panel_of(*series: Series, **changes: Any) -> dict[str, Any]:
    view: dict[str, Any] = spec_of(chart_of(*series, **changes))["concat"][0]
    return view


def marks_of(*series: Series, **changes: Any) -> list[dict[str, Any]]:
    """The marks of a panel from the lowest to the highest, without that of the legend."""
    return [layer["mark"] for layer in panel_of(*series, **changes)["layer"] if "name" in layer["data"]]


def rows_of(*series: Series, **changes: Any) -> list[dict[str, Any]]:
    return [row for rows in spec_of(chart_of(*series, **changes))["datasets"].values() for row in rows]


def points(name: str = "world_size 1", **changes: Any) -> Series:
    return Series(**({"name": name, "x": [16, 32, 64], "y": [1.0, 2.0, 3.0]} | changes))


def bar(name: str, x: list[str], y: list[float | None], **changes: Any) -> Series:
    return Series(name=name, kind="bar", x=x, y=y, **changes)


def test_every_figure_is_saved_in_three_formats_that_name_its_axes_with_their_units(tmp_path: Path) -> None:
    found = everything()
    assert [chart.name for chart in found] == [name for name in FIGURES if name != "critical_batch"], "no target"
    paths = save(found, tmp_path / "figures")
    kinds = ("png", "svg", "pdf")
    assert [path.name for path in paths] == [f"{chart.name}.{kind}" for chart in found for kind in kinds]
    for chart, place in zip(found, range(0, len(paths), 3), strict=True):
        png, svg, pdf = paths[place : place + 3]
        with Image.open(png) as image:
            assert image.format == "PNG"
            assert min(image.size) > 400
        assert pdf.read_bytes().startswith(b"%PDF")
        said = texts(svg)
        assert chart.title in said
        for panel in chart.panels:
            assert panel.x.label in said
            assert panel.y.label in said
            assert panel.y.label.endswith(")")
            assert panel.x.categories or panel.x.label.endswith(")")
            if len({series.name for panel in chart.panels for series in panel.series}) > 1:
                assert all(series.name in said for series in panel.series if series.kind != "band")


def test_the_same_chart_makes_the_same_svg(tmp_path: Path) -> None:
    chart = everything()[2]
    one, other = (save([chart], tmp_path / folder)[1].read_bytes() for folder in ("one", "other"))
    assert one == other


def test_a_specification_is_plain_values_that_json_can_hold() -> None:
    series = points(y=[1.0, math.nan, math.inf], low=[0.5, None, 2.5], high=[1.5, None, 3.5], runs=[("a-0",), (), ()])
    drawn = spec_of(chart_of(series))
    assert json.loads(json.dumps(drawn, allow_nan=False)) == json.loads(json.dumps(drawn))
    assert [row["y"] for row in rows_of(series)] == [1, None, None]


def test_log_axes_have_a_tick_at_each_value_that_was_measured() -> None:
    x = panel_of(points())["encoding"]["x"]
    assert (x["scale"]["type"], x["axis"]["values"]) == ("log", [16, 32, 64])
    low, high = x["scale"]["domain"]
    assert 12 < low < 16
    assert 64 < high < 80


def test_many_or_crowded_values_have_round_ticks() -> None:
    def ticks(x: list[float], axis: Axis) -> Any:
        return panel_of(points(x=x, y=[1.0] * len(x)), x=axis)["encoding"]["x"]["axis"].get("values")

    assert ticks([float(2**place) for place in range(20)], Axis("n", log=True)) == [10.0**place for place in range(7)]
    assert ticks([1.0, 1.001, 100.0], Axis("MiB", log=True)) == [1, 2, 5, 10, 20, 50, 100]
    assert ticks([1.0, 1.001, 100.0], Axis("MiB")) is None
    assert ticks([1000.0, 1001.0, 1002.0], Axis("pixels")) == [1000, 1001, 1002]
    assert ticks([1000.0, 1001.0, 1002.0], Axis("pixels", from_zero=True)) is None


def test_a_curve_that_goes_beyond_what_was_measured_has_ticks_there_too() -> None:
    curve = Series(name="model", kind="line", x=[1, 1024], y=[1.0, 9.0])
    ticks = panel_of(points(x=[1, 2, 4]), curve, x=Axis("ranks", log=True))["encoding"]["x"]["axis"]["values"]
    assert {1, 100, 1000} <= set(ticks)


def test_a_long_label_goes_over_several_lines() -> None:
    axis = panel_of(points(), y=Axis("exposed communication (fraction of a pass)"))["encoding"]["y"]["axis"]
    assert axis["title"] == ["exposed communication", "(fraction of a pass)"]


def test_an_axis_from_zero_begins_there_and_another_one_below_its_values() -> None:
    from_zero = panel_of(points(), y=Axis("s", from_zero=True))["encoding"]["y"]["scale"]["domain"]
    assert from_zero == [0, pytest.approx(3.15)]
    low, _ = panel_of(points(y=[880.0, 881.0, 882.0]))["encoding"]["y"]["scale"]["domain"]
    assert 879 < low < 880


def test_panels_of_one_quantity_share_their_scale() -> None:
    memory, loss = Axis("memory (MiB)", from_zero=True), Axis("loss (nats)")
    panels = [
        Panel(y=y, series=[points("a", y=[1.0, 2.0, top])]) for y, top in ((memory, 10.0), (loss, 3.0), (memory, 40.0))
    ]
    views = spec_of(Chart(name="c", title="t", panels=panels))["concat"]
    first, other, last = (view["encoding"]["y"]["scale"]["domain"] for view in views)
    assert first == last == [0, 42]
    assert other[1] < 5


def test_names_keep_their_order_and_are_never_joined() -> None:
    series = points(x=["gloo", "nccl"], y=[1.0, 2.0], connected=True)
    axis = Axis("backend", categories=["nccl", "mpi", "gloo"])
    assert panel_of(series, x=axis)["encoding"]["x"]["scale"]["domain"] == ["nccl", "mpi", "gloo"]
    assert [mark["type"] for mark in marks_of(series, x=axis)] == ["point"]


def test_series_at_the_same_category_do_not_hide_each_other() -> None:
    both = [Series(name=name, x=["0"], y=[1.0]) for name in ("a", "b")]
    lost = Series(name="oom", kind="cross", x=["0"], y=[None], same_as="b")
    layers = panel_of(*both, lost, x=Axis("rank", categories=["0"]))["layer"]
    assert layers[0]["encoding"]["xOffset"]["scale"]["domain"] == ["a", "b"]
    lines = [row["line"] for row in rows_of(*both, lost, x=Axis("rank", categories=["0"]))]
    assert lines == ["a", "b", "b"], "a cross stands at its line"


@pytest.mark.parametrize(("count", "kinds"), [(3, ["errorbar", "line", "point"]), (12, ["area", "line", "point"])])
def test_intervals_of_many_connected_points_are_an_area_and_of_few_are_bars(count: int, kinds: list[str]) -> None:
    values: list[Any] = list(range(1, count + 1))
    series = points(x=values, y=values, low=values, high=values, connected=True)
    assert [mark["type"] for mark in marks_of(series)] == kinds


def test_a_band_lies_under_its_curve_and_has_no_legend_entry() -> None:
    curve = points("fit", kind="line")
    band = Series(name="interval", kind="band", x=[1, 2], y=[], low=[0, 0], high=[1, 1], same_as="fit")
    under, over = marks_of(curve, band)
    assert (under["type"], over["type"]) == ("area", "line")
    assert under["color"] == over["color"]
    assert spec_of(chart_of(curve, band))["usermeta"]["names"] == ["fit"]


def test_a_cross_without_a_value_lies_at_the_upper_edge_and_one_with_a_value_at_its_height() -> None:
    edge = Series(name="oom", kind="cross", x=[128], y=[None], texts=["1 of 3 runs: no room"], runs=[("c-0",)])
    *_, cross, _ = panel_of(points(), edge)["layer"]
    assert cross["mark"]["shape"] == CROSS
    assert cross["encoding"]["y"] == {"value": 6}
    (row,) = [row for row in rows_of(points(), edge) if row["series"] == "oom"]
    assert (row["text"], row["runs"]) == ("1 of 3 runs: no room", ("c-0",))
    *_, placed, _ = panel_of(points(), Series(name="oom", kind="cross", x=[128], y=[8.0]))["layer"]
    assert "y" not in placed["encoding"]


def test_stacked_bars_stand_on_each_other_from_zero() -> None:
    parts = [bar("a", ["loop", "numpy"], [4.0, None]), bar("b", ["loop", "numpy"], [2.0, 1.0])]
    rows = rows_of(*parts, x=WAYS, y=Axis("MiB", from_zero=True), stacked=True)
    ends = {(row["series"], row["x"]): (row.get("foot"), row.get("top")) for row in rows}
    assert ends == {("a", "loop"): (0, 4), ("a", "numpy"): (None, None), ("b", "loop"): (4, 6), ("b", "numpy"): (0, 1)}
    view = panel_of(*parts, x=WAYS, y=Axis("MiB", from_zero=True), stacked=True)
    assert view["encoding"]["y"]["scale"]["domain"] == [0, pytest.approx(6.3)]


def test_on_a_logarithmic_axis_bars_stand_on_a_power_of_ten_where_the_axis_begins() -> None:
    ends: dict[str, Any] = {"low": [20.0, -2.0, None], "high": [500.0, 4.0, None]}
    series = bar("a", ["loop", "numpy", "torch"], [412.0, 3.1, 0.0], **ends)
    changes: dict[str, Any] = {"x": WAYS, "y": Axis("t (ms)", log=True)}
    low, high = panel_of(series, **changes)["encoding"]["y"]["scale"]["domain"]
    assert (low, high > 500) == (1, True)
    found = [(row.get("foot"), row.get("top"), row["low"]) for row in rows_of(series, **changes)]
    assert found == [(1, 412, 20), (1, 3.1, 1), (None, None, None)]


@pytest.mark.parametrize("value", [0.0, -1.0, 5e-324, 1.7e308, math.inf, 2**63])
def test_no_value_of_a_bar_on_a_logarithmic_axis_breaks_a_figure(value: float, tmp_path: Path) -> None:
    chart = chart_of(bar("a", ["loop", "numpy"], [value, 3.0]), x=WAYS, y=Axis("t (ms)", log=True))
    assert "t (ms)" in texts(save([chart], tmp_path)[1])


def test_the_interval_of_a_bar_has_another_colour_than_the_bar() -> None:
    drawn, interval = marks_of(bar("a", ["loop"], [4.0], low=[3.0], high=[6.0]), x=WAYS)
    assert (drawn["color"], interval["color"]) == (LIGHT["series0"], LIGHT["ink"])


def test_the_legend_has_each_name_once_measured_first_and_without_a_colour_what_several_lines_share() -> None:
    lines = [points("a", connected=True), points("b", connected=True)]
    shared = [points(name, same_as=line.name, **kind) for line in lines for name, kind in (
        ("ideal", {"dashed": True, "kind": "line"}), ("oom", {"kind": "cross"}),
    )]  # fmt: skip
    spec = spec_of(chart_of(shared[0], lines[0], shared[1], lines[1], *shared[2:]))
    assert spec["usermeta"]["names"] == ["a", "b", "oom", "ideal"]
    legend = spec["concat"][0]["layer"][-1]["encoding"]["stroke"]["scale"]
    assert legend["domain"] == ["a", "b", "oom", "ideal"]
    assert legend["range"] == [LIGHT["series0"], LIGHT["series1"], LIGHT["muted"], LIGHT["muted"]]


def test_one_series_alone_needs_no_legend() -> None:
    assert all("name" in layer["data"] for layer in panel_of(points())["layer"])


def test_texts_of_users_are_drawn_as_they_are(tmp_path: Path) -> None:
    bad = '<b>& {datum.x} $x$ [0] var(--ink) \\" @ \x1b'
    name = "".join(f"{bad} {letter}" for letter in "xy")
    panel = Panel(
        x=Axis(bad, categories=[bad]), y=Axis(bad), title=bad,
        series=[Series(name=end, x=[bad], y=[1.0], texts=[bad], runs=[("a",)]) for end in (bad, name)],
    )  # fmt: skip
    chart = Chart(name="c", title=bad, panels=[panel], notes=[bad])
    said = texts(save([chart], tmp_path)[1])
    assert said.count(bad.replace("\x1b", "\\x1b")) > 6
    page = json.dumps(vega_lite(chart, Styles([chart]), PAGE))
    assert "\x1b" not in page
    assert "\\u001b" not in page


def test_a_page_has_names_of_colours_and_a_file_has_colours() -> None:
    chart = chart_of(points())
    assert "#" not in json.dumps(vega_lite(chart, Styles([chart]), PAGE)).replace("$schema", "")
    assert "var(" not in json.dumps(spec_of(chart))


def test_a_picture_keeps_its_form_beside_axes(tmp_path: Path) -> None:
    bars = Panel(x=WAYS, y=Axis("t (ms)", log=True), series=[bar("a", ["loop"], [4.0], low=[3.0], high=[6.0])])
    chart = Chart(name="seen", title="Seen", panels=[bars, Panel(picture=jpeg(60, 20), title="Colour and grey")])
    _, view = spec_of(chart)["concat"]
    assert view["mark"]["url"] == f"data:image/jpeg;base64,{jpeg(60, 20)}"
    assert view["mark"]["aspect"]
    svg = save([chart], tmp_path)[1]
    assert "<image" in svg.read_text()
    assert "Colour and grey" in texts(svg)
