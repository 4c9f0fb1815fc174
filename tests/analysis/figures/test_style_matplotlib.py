from __future__ import annotations

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.style import LIGHT
from dmls_ray.analysis.figures.style_matplotlib import BLACK, GREY, legend_entries, matplotlib_styles


def line(name: str, **changes: object) -> Series:
    return Series(**{"name": name, "x": [1, 2], "y": [1.0, 2.0], "connected": True, **changes})  # type: ignore[arg-type]


def chart_of(*series: Series) -> Chart:
    return Chart(name="a", title="A", panels=[Panel(x=Axis("x (s)"), y=Axis("y (s)"), series=series)])


def test_series_differ_in_colour_and_in_mark_also_where_the_colours_are_used_up() -> None:
    styles = matplotlib_styles(chart_of(*(line(str(number)) for number in range(40))))
    assert len({(style.colour, style.mark) for style in styles.values()}) == 40
    first = list(styles.values())[:8]
    assert len({style.colour for style in first}) == len({style.mark for style in first}) == 8


def test_a_name_looks_the_same_in_every_panel() -> None:
    one = Panel(x=Axis("x"), y=Axis("y"), series=[line("a"), line("b")])
    other = Panel(x=Axis("x"), y=Axis("y"), series=[line("b")])
    styles = matplotlib_styles(Chart(name="a", title="A", panels=[one, other]))
    assert list(styles) == [("a", ""), ("b", "")]


def test_a_copied_style_is_hollow_or_dashed_or_a_cross_in_the_same_colour() -> None:
    styles = matplotlib_styles(
        chart_of(
            line("test"),
            line("train", same_as="test"),
            line("ideal", kind="line", dashed=True, same_as="test"),
            line("oom", kind="cross", same_as="test"),
        )
    )
    assert {style.colour for style in styles.values()} == {LIGHT.series[0]}
    assert (styles["train", "test"].mark, styles["train", "test"].hollow) == ("o", True)
    assert styles["ideal", "test"].dashes
    assert styles["oom", "test"].mark == "x"


def test_laws_differ_in_their_dashes_and_one_law_has_the_same_for_every_line() -> None:
    laws = [line(name, dashed=True, same_as=other) for other in ("a", "b") for name in ("ideal", "Amdahl")]
    styles = matplotlib_styles(chart_of(line("a"), line("b"), *laws))
    assert styles["ideal", "a"].dashes == styles["ideal", "b"].dashes != styles["Amdahl", "a"].dashes
    assert styles["ideal", "a"].colour != styles["ideal", "b"].colour


def test_points_among_curves_are_rings_and_points_alone_are_not() -> None:
    assert matplotlib_styles(chart_of(line("a"), line("mark", connected=False)))["mark", ""].ring
    assert not matplotlib_styles(chart_of(line("mark", connected=False)))["mark", ""].ring


def test_background_series_are_grey_and_use_no_colour() -> None:
    styles = matplotlib_styles(chart_of(line("others", connected=False, muted=True), line("a", connected=False)))
    assert styles["others", ""].colour == GREY
    assert styles["a", ""].colour == LIGHT.series[0]


def bar(name: str, *names: str, **changes: object) -> Series:
    return Series(**{"name": name, "kind": "bar", "x": names, "y": [1.0] * len(names), **changes})  # type: ignore[arg-type]


def bar_series(*series: Series) -> Chart:
    panel = Panel(x=Axis("way", categories=["x", "y"]), y=Axis("y (s)"), series=series)
    return Chart(name="a", title="A", panels=[panel])


def test_bars_differ_in_colour_and_in_pattern_if_they_share_a_category() -> None:
    separate = matplotlib_styles(bar_series(bar("a", "x"), bar("b", "y")))
    assert [(style.colour, style.hatch) for style in separate.values()] == [
        (LIGHT.series[0], ""),
        (LIGHT.series[1], ""),
    ]
    bar_offsets = matplotlib_styles(bar_series(*(bar(str(number), "x", "y") for number in range(40))))
    assert len({(style.colour, style.hatch) for style in bar_offsets.values()}) == 40
    assert len({style.hatch for style in list(bar_offsets.values())[:8]}) == 8


def test_a_bar_like_another_or_that_stands_back_or_was_not_measured_is_pale() -> None:
    styles = matplotlib_styles(
        bar_series(bar("a", "x"), bar("b", "x", same_as="a"), bar("c", "y", muted=True), bar("d", "y", dashed=True))
    )
    assert [style.hollow for style in styles.values()] == [False, True, True, True]
    assert styles["b", "a"].colour == LIGHT.series[0]
    assert styles["c", ""].colour == styles["d", ""].colour == GREY


def test_the_legend_has_each_name_once_measured_first_and_without_a_colour_what_several_lines_share() -> None:
    legend = legend_entries(
        chart_of(
            line("a"),
            line("ideal", dashed=True, same_as="a"),
            line("oom", kind="cross", same_as="a"),
            line("b"),
            line("ideal", dashed=True, same_as="b"),
            line("oom", kind="cross", same_as="b"),
        )
    )
    assert list(legend) == ["a", "b", "oom", "ideal"]
    assert [legend[name][1].colour for name in ("oom", "ideal")] == [BLACK, GREY]


def test_one_series_alone_needs_no_legend() -> None:
    assert legend_entries(chart_of(line("a"))) == {}
