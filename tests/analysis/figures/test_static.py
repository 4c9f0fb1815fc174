from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patches import Rectangle
from PIL import Image

from dmls_ray.analysis.figures import FIGURES, changes, charts, search
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.interactive import plotly_figure
from dmls_ray.analysis.figures.static import draw, save
from dmls_ray.analysis.figures.static_panel import BLACK, GREY
from dmls_ray.analysis.figures.style import LIGHT
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.epoch_and_rank import STEP_QUANTILES, EpochRecord
from tests.analysis.samples import MACHINE, results
from tests.conftest import jpeg


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
            record.epochs = [EpochRecord(epoch=number, metrics={
            "train_loss": 1 / number, "test_loss": 1.1 / number, "test_accuracy": 0.5, "train_accuracy": 0.6,
        }) for number in (1, 2, 3)]  # fmt: skip
        record.metrics["step_ms_p50"] = 4.0
        record.metrics["data_wait_ms"] = record.metrics["forward_ms"] = record.metrics["backward_ms"] = 1.0
        for rank in record.ranks:
            rank.metrics["step_ms_p50"], rank.metrics["tensor_mem_mib"] = 4.0 + rank.rank, 100.0 + rank.rank
            rank.step_ms_quantiles = [1.0 + place for place in range(len(STEP_QUANTILES))]
            rank.utilization = {"at_s": [0.5, 1.0, 1.5], "cpu_percent": [90.0, 95.0, 99.0]}
            if len(record.ranks) > 1:
                rank.metrics["forward_ms"], rank.metrics["backward_ms"] = 1.0, 2.0
                rank.metrics["comm_ms"], rank.metrics["overlap_ms"], rank.metrics["exposed_comm_ms"] = 2.0, 1.0, 1.0
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


def test_every_figure_is_saved_as_a_png_and_an_svg_that_names_its_axes_with_their_units(tmp_path: Path) -> None:
    found = everything()
    assert [chart.name for chart in found] == [name for name in FIGURES if name != "critical_batch"], "no target"
    for chart in found:
        png, svg = save(chart, tmp_path / "figures")
        assert (png.name, svg.name) == (f"{chart.name}.png", f"{chart.name}.svg")
        with Image.open(png) as image:
            assert image.format == "PNG"
            assert min(image.size) > 400
        said = texts(svg)
        assert chart.title in said
        for panel in chart.panels:
            assert panel.x.label in said
            assert panel.y.label in said
            assert panel.y.label.endswith(")")
            assert panel.x.categories or panel.x.label.endswith(")")
            if len({series.name for panel in chart.panels for series in panel.series}) > 1:
                assert all(series.name in said for series in panel.series)
    assert len(list((tmp_path / "figures").iterdir())) == 2 * len(found)


def test_the_same_chart_makes_the_same_svg(tmp_path: Path) -> None:
    chart = everything()[1]
    one, other = (save(chart, tmp_path / folder)[1].read_bytes() for folder in ("one", "other"))
    assert one == other
    assert b"dc:date" not in one


def a_chart(*series: Series, x: Axis | None = None, y: Axis | None = None) -> Chart:
    panel = Panel(x=x or Axis("batch_per_rank (samples)"), y=y or Axis("peak (MiB)"), series=series)
    return Chart(name="some", title="Some", panels=[panel])


def ticks(chart: Chart) -> list[str]:
    figure = draw(chart)
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.axes[0].get_xticklabels()]


def line(name: str, **changes: Any) -> Series:
    return Series(**{"name": name, "x": [1, 2], "y": [1.0, 2.0], "connected": True, **changes})


def test_series_of_one_colour_are_a_hollow_mark_a_dashed_line_and_a_cross() -> None:
    solid, hollow, dashed, cross = (
        draw(
            a_chart(
                line("test"),
                line("train", same_as="test"),
                line("ideal", kind="line", dashed=True, same_as="test"),
                line("oom", kind="cross", x=[2], y=[2.0], same_as="test"),
            )
        )
        .axes[0]
        .lines
    )
    assert {item.get_color() for item in (solid, hollow, dashed, cross)} == {LIGHT.series[0]}
    assert [item.get_marker() for item in (solid, hollow, cross)] == ["o", "o", "x"]
    assert (hollow.get_markerfacecolor(), dashed.get_linestyle()) == ("white", "--")


def test_a_value_outside_of_its_interval_is_drawn() -> None:
    axes = draw(a_chart(Series(name="a", x=[1], y=[2.0], low=[0.5], high=[1.0]))).axes[0]
    (interval,) = [item for item in axes.collections if isinstance(item, LineCollection)]
    assert [y for _, y in interval.get_segments()[0]] == [0.5, 2.0]


def test_the_legend_has_each_name_once_measured_first_and_without_a_colour_what_several_lines_share() -> None:
    chart = a_chart(
        line("a"),
        line("ideal", dashed=True, same_as="a"),
        line("oom", kind="cross", same_as="a"),
        line("b"),
        line("ideal", dashed=True, same_as="b"),
        line("oom", kind="cross", same_as="b"),
    )
    (legend,) = draw(chart).legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "oom", "ideal"]
    assert [mark.get_color() for mark in legend.get_lines()] == [*LIGHT.series[:2], BLACK, GREY]


def test_one_series_alone_needs_no_legend() -> None:
    assert draw(a_chart(line("a"))).legends == []


def test_measured_values_are_the_ticks_of_a_logarithmic_axis() -> None:
    points = Series(name="a", x=[16, 48, 1024], y=[1.0, 2.0, 3.0], connected=True)
    assert ticks(a_chart(points, x=Axis("batch (samples)", log=True))) == ["16", "48", "1,024"]


def test_a_curve_that_goes_beyond_what_was_measured_has_ticks_there_too() -> None:
    points = Series(name="a", x=[1, 2, 4], y=[1.0, 2.0, 3.0])
    curve = Series(name="model", kind="line", x=[1, 1024], y=[1.0, 9.0])
    panel = Panel(x=Axis("ranks", log=True), y=Axis("step (ms)"), series=[points, curve])
    found = ticks(Chart(name="a", title="A", panels=[panel]))
    assert {"1", "100", "1,000"} <= set(found)


def test_names_are_the_ticks_in_their_order_and_are_not_joined() -> None:
    points = Series(name="a", x=["mpi", "gloo"], y=[1.0, 2.0])
    chart = a_chart(points, x=Axis("backend", categories=["gloo", "mpi"]))
    assert ticks(chart) == ["gloo", "mpi"]
    (line,) = draw(chart).axes[0].lines
    assert list(line.get_xdata()) == [1.0, 0.0]
    assert line.get_linestyle() == "None"


def test_series_at_the_same_category_do_not_hide_each_other() -> None:
    both = [Series(name=name, x=["0"], y=[1.0]) for name in ("a", "b")]
    one, other = draw(a_chart(*both, x=Axis("rank", categories=["0"]))).axes[0].lines
    assert one.get_xdata()[0] < 0 < other.get_xdata()[0]


def test_a_lower_limit_is_an_open_triangle_that_no_line_joins() -> None:
    axes = draw(a_chart(line("time"), line("at least", kind="bound", same_as="time", connected=False))).axes[0]
    _, limit = axes.get_lines()
    assert (limit.get_marker(), limit.get_linestyle(), limit.get_markerfacecolor()) == ("^", "None", "white")
    assert limit.get_color() == LIGHT.series[0]


def test_a_value_that_is_not_there_is_left_out_and_a_cross_without_a_height_lies_at_the_upper_edge() -> None:
    points = Series(name="a", x=[1, 2, 3], y=[1.0, None, 3.0], connected=True)
    cross = Series(name="oom", kind="cross", x=[3], y=[None])
    axes = draw(a_chart(points, cross)).axes[0]
    line, mark = axes.lines
    assert [value == value for value in line.get_ydata()] == [True, False, True]
    (height,) = mark.get_ydata()
    assert 0.9 < height < 1
    assert mark.get_transform() == axes.get_xaxis_transform()
    assert axes.get_ylim()[1] < 4


def test_an_axis_from_zero_begins_at_zero_and_includes_the_last_point() -> None:
    points = Series(name="a", x=[883.0, 884.0], y=[1.0, 2.0])
    axes = draw(a_chart(points, x=Axis("peak (MiB)", from_zero=True), y=Axis("y (s)", from_zero=True))).axes[0]
    assert axes.get_xlim()[0] == axes.get_ylim()[0] == 0
    assert axes.get_xlim()[1] > 900


@pytest.mark.parametrize(("count", "bars", "areas"), [(3, 1, 0), (12, 0, 1)])
def test_intervals_of_many_connected_points_are_an_area_and_of_few_are_bars(count: int, bars: int, areas: int) -> None:
    values: list[Any] = list(range(1, count + 1))
    points = Series(name="a", x=values, y=values, low=values, high=values, connected=True)
    axes = draw(a_chart(points)).axes[0]
    assert len(axes.containers) == bars
    assert sum(isinstance(item, PolyCollection) for item in axes.collections) == areas


WAYS = Axis("way", categories=["loop", "numpy", "torch"])


def bar(name: str, x: list[str], y: list[float | None], **changes: Any) -> Series:
    return Series(name=name, kind="bar", x=x, y=y, **changes)


def shapes(axes: Axes) -> list[tuple[float, float, float, float]]:
    """Left edge, width, foot and top of each bar."""
    bars = [item for item in axes.patches if isinstance(item, Rectangle)]
    return [
        tuple(
            round(value, 6)
            for value in (item.get_x(), item.get_width(), item.get_y(), item.get_y() + item.get_height())
        )
        for item in bars
    ]  # type: ignore[misc]


def test_a_bar_stands_in_the_middle_of_its_name_from_zero_to_its_value() -> None:
    axes = draw(a_chart(bar("a", ["loop"], [4.0]), bar("b", ["torch", "numpy"], [2.0, None]), x=WAYS)).axes[0]
    assert shapes(axes) == [(-0.4, 0.8, 0, 4), (1.6, 0.8, 0, 2)]
    assert axes.get_ylim()[0] == 0


def test_bars_at_one_name_do_not_hide_each_other() -> None:
    axes = draw(a_chart(bar("a", ["loop", "numpy"], [4.0, 1.0]), bar("b", ["loop"], [2.0]), x=WAYS)).axes[0]
    assert shapes(axes) == [(-0.4, 0.4, 0, 4), (0.8, 0.4, 0, 1), (0, 0.4, 0, 2)]


def test_stacked_bars_stand_on_each_other() -> None:
    parts = [bar("a", ["loop", "numpy"], [4.0, 1.0]), bar("b", ["loop"], [2.0])]
    stacked = Chart(name="c", title="t", panels=[Panel(x=WAYS, y=Axis("MiB"), series=parts, stacked=True)])
    assert shapes(draw(stacked).axes[0]) == [(-0.4, 0.8, 0, 4), (0.6, 0.8, 0, 1), (-0.4, 0.8, 4, 6)]


def test_panels_of_one_quantity_share_their_scale() -> None:
    memory, loss = Axis("memory (MiB)", from_zero=True), Axis("loss (nats)")
    panels = [Panel(y=y, series=[line("a", y=[1.0, top])]) for y, top in ((memory, 10.0), (loss, 3.0), (memory, 40.0))]
    first, other, last = draw(Chart(name="c", title="t", panels=panels)).axes
    assert first.get_ylim() == last.get_ylim() == (0, pytest.approx(40, rel=0.2))
    assert other.get_ylim()[1] < 5
    layout = plotly_figure(Chart(name="c", title="t", panels=panels))["layout"]
    assert [layout[name].get("matches") for name in ("yaxis", "yaxis2", "yaxis3")] == [None, None, "y"]


def test_on_a_logarithmic_axis_bars_stand_on_a_power_of_ten_where_the_axis_begins() -> None:
    ends: dict[str, Any] = {"low": [20.0, -2.0, None], "high": [500.0, 4.0, None]}
    chart = a_chart(bar("a", ["loop", "numpy", "torch"], [412.0, 3.1, 0.0], **ends), x=WAYS, y=Axis("t (ms)", log=True))
    axes = draw(chart).axes[0]
    assert [(low, high) for _, _, low, high in shapes(axes)] == [(1, 412), (1, 3.1)]
    assert axes.get_ylim()[0] == 1
    assert axes.get_ylim()[1] > 500


def test_the_ticks_of_many_powers_of_ten_do_not_overlap() -> None:
    names = [f"implementation_{place}" for place in range(13)]
    bars = bar("a", names, [14_000 / 3**place for place in range(13)])
    bar_offsets = Panel(picture=jpeg(400, 200))
    panel = Panel(x=Axis("way", categories=names), y=Axis("t (ms)", log=True), series=[bars])
    figure = draw(Chart(name="a", title="A", panels=[panel, bar_offsets]))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    low, high = axes.get_ylim()
    texts = [
        text for text, place in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True) if low <= place <= high
    ]
    assert len(texts) > 4
    boxes = sorted((text.get_window_extent() for text in texts), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))


def test_the_interval_of_a_bar_stands_on_its_middle_and_is_seen_within_the_bar() -> None:
    series = [bar(name, ["loop"], [4.0], low=[3.0], high=[6.0]) for name in "abcdefgh"]
    axes = draw(a_chart(*series, x=WAYS)).axes[0]
    intervals = [item for item in axes.collections if isinstance(item, LineCollection)]
    bars = [item for item in axes.patches if isinstance(item, Rectangle)]
    for interval, drawn in zip(intervals, bars, strict=True):
        ((low, high),) = interval.get_segments()
        middle = drawn.get_x() + drawn.get_width() / 2
        assert [*low, *high] == pytest.approx([middle, 3, middle, 6])
        assert tuple(interval.get_color()[0][:3]) != drawn.get_facecolor()[:3]


def test_bars_have_a_square_of_their_colour_in_the_legend() -> None:
    figure = draw(a_chart(bar("a", ["loop"], [4.0]), bar("b", ["torch"], [2.0]), x=WAYS))
    bars = [item for item in figure.axes[0].patches if isinstance(item, Rectangle)]
    squares = [item for item in figure.legends[0].get_patches() if isinstance(item, Rectangle)]
    assert [item.get_facecolor() for item in squares] == [item.get_facecolor() for item in bars]
    assert len({item.get_facecolor() for item in bars}) == 2
    assert all(item.get_width() == item.get_height() > 0 for item in squares)


def seen(picture: str) -> Chart:
    bars = Panel(x=WAYS, y=Axis("t (ms)", log=True), series=[bar("a", ["loop"], [4.0], low=[3.0], high=[6.0])])
    return Chart(name="seen", title="Seen", panels=[bars, Panel(picture=picture, title="Colour and grey")])


def test_a_picture_is_drawn_in_its_form_without_axes_below_its_title() -> None:
    figure = draw(seen(jpeg(60, 20)))
    figure.draw_without_rendering()
    axes = figure.axes[1]
    (image,) = axes.images
    drawn = image.get_array()
    assert drawn is not None
    assert drawn.shape == (20, 60, 3)
    assert abs(drawn[10, 30].astype(int) - [0x00, 0x72, 0xB2]).max() < 4
    assert not axes.axison
    box = axes.get_window_extent()
    assert box.width / box.height == pytest.approx(3)
    assert axes.get_title() == "Colour and grey"
    assert axes.title.get_window_extent().y0 == pytest.approx(figure.axes[0].get_window_extent().y1, abs=20)


@pytest.mark.parametrize("picture", [jpeg(2000, 10), "/9j/AAAA"])
def test_a_picture_that_is_none_or_too_large_is_said_to_be_and_the_rest_is_drawn(picture: str, tmp_path: Path) -> None:
    _, svg = save(seen(picture), tmp_path)
    assert "This picture is not shown: it is no JPEG of at most 1,024 x 1,024 pixels." in texts(svg)
    assert "t (ms)" in texts(svg)
    assert "<image" not in svg.read_text()


def test_the_same_bars_and_picture_make_the_same_svg(tmp_path: Path) -> None:
    chart = seen(jpeg(60, 20))
    patterned = [bar(name, ["loop"], [4.0]) for name in "abcdefgh"]
    for one_of_them in (chart, a_chart(*patterned, x=WAYS)):
        one, other = (save(one_of_them, tmp_path / folder)[1].read_bytes() for folder in ("one", "other"))
        assert one == other
    assert b"<image" in save(chart, tmp_path)[1].read_bytes()


def test_drawing_leaves_pyplot_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    draw(a_chart(Series(name="a", x=[1], y=[1.0])))
    assert "matplotlib.pyplot" not in sys.modules
