from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dmls_ray.analysis.figures.chart import Chart, Panel, PlotAxis, PlotSeries, Point
from dmls_ray.analysis.figures.style import DARK, LIGHT, Style, Styles


def line(name: str, **changes: Any) -> PlotSeries:
    return PlotSeries(name, [Point(1, 1.0), Point(2, 2.0)], **{"connected": True, **changes})


def chart_of(*series: PlotSeries, stacked: bool = False) -> Chart:
    return Chart(name="a", title="A", panels=[Panel(x=PlotAxis("x"), y=PlotAxis("y"), series=series, stacked=stacked)])


def styles_of(*series: PlotSeries, stacked: bool = False) -> list[Style]:
    chart = chart_of(*series, stacked=stacked)
    styles = Styles([chart])
    return [styles.of(item, chart.panels[0]) for item in series]


def test_series_differ_in_colour_and_in_mark_also_where_the_colours_are_used_up() -> None:
    styles = styles_of(*(line(str(number)) for number in range(40)))
    assert len({(style.colour, style.mark) for style in styles}) == 40
    assert len({style.colour for style in styles[:8]}) == len({style.mark for style in styles[:8]}) == 8


def test_a_name_has_one_colour_in_all_figures_and_the_names_of_a_figure_differ() -> None:
    charts = [chart_of(*map(line, names)) for names in ("ab", "cb", "cad")]
    styles = Styles(charts)
    found: dict[str, set[str]] = {}
    for chart in charts:
        (panel,) = chart.panels
        colours = {series.name: styles.of(series, panel).colour for series in panel.series}
        assert len(set(colours.values())) == len(colours)
        for name, colour in colours.items():
            found.setdefault(name, set()).add(colour)
    assert found == {"a": {"series0"}, "b": {"series1"}, "c": {"series2"}, "d": {"series1"}}


def test_the_parts_of_an_amount_are_spread_over_all_colours() -> None:
    bars = [line(str(number), kind="bar") for number in range(5)]
    assert [style.colour for style in styles_of(*bars, stacked=True)] == ["part0", "part2", "part4", "part5", "part7"]
    assert styles_of(bars[0])[0].colour == "series0"


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_every_colour_can_be_seen_on_its_background(theme: Mapping[str, str]) -> None:
    for name in ("muted", *(f"series{place}" for place in range(8))):
        assert contrast(theme[name], theme["paper"]) >= 3, name
    assert contrast(theme["ink"], theme["paper"]) >= 7


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)
