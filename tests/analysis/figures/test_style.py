from __future__ import annotations

import pytest

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.style import DARK, LIGHT, Style, Theme, assign_styles


def line(name: str, **changes: object) -> Series:
    return Series(**{"name": name, "x": [1, 2], "y": [1.0, 2.0], "connected": True, **changes})  # type: ignore[arg-type]


def chart_of(*series: Series) -> Chart:
    return Chart(name="a", title="A", panels=[Panel(x=Axis("x (s)"), y=Axis("y (s)"), series=series)])


def test_series_differ_in_colour_and_in_mark_also_where_the_colours_are_used_up() -> None:
    styles = assign_styles(chart_of(*(line(str(number)) for number in range(40))))
    assert len({(style.colour, style.mark) for style in styles.values()}) == 40
    first = list(styles.values())[:8]
    assert len({style.colour for style in first}) == len({style.mark for style in first}) == 8


def test_a_name_looks_the_same_in_every_panel() -> None:
    one = Panel(x=Axis("x"), y=Axis("y"), series=[line("a"), line("b")])
    other = Panel(x=Axis("x"), y=Axis("y"), series=[line("b")])
    styles = assign_styles(Chart(name="a", title="A", panels=[one, other]))
    assert list(styles) == [("a", ""), ("b", "")]


def test_a_copied_style_is_hollow_or_dashed_in_the_same_colour() -> None:
    styles = assign_styles(
        chart_of(
            line("test"),
            line("train", same_as="test"),
            line("ideal", kind="line", dashed=True, same_as="test"),
            line("oom", kind="cross", same_as="test"),
            line("at least", kind="bound", same_as="test"),
        )
    )
    assert {style.colour for style in styles.values()} == {0}
    assert (styles["train", "test"].mark, styles["train", "test"].hollow) == ("circle", True)
    assert styles["ideal", "test"].dash == "dash"
    assert (styles["at least", "test"].mark, styles["at least", "test"].hollow) == ("triangle-up", True)


def test_laws_differ_in_their_dashes_and_one_law_has_the_same_for_every_line() -> None:
    laws = [line(name, dashed=True, same_as=other) for other in ("a", "b") for name in ("ideal", "Amdahl")]
    styles = assign_styles(chart_of(line("a"), line("b"), *laws))
    assert styles["ideal", "a"].dash == styles["ideal", "b"].dash != styles["Amdahl", "a"].dash
    assert (styles["ideal", "a"].colour, styles["ideal", "b"].colour) == (0, 1)


def test_points_among_curves_are_rings_and_points_alone_are_not() -> None:
    assert assign_styles(chart_of(line("a"), line("mark", connected=False)))["mark", ""].ring
    assert not assign_styles(chart_of(line("mark", connected=False)))["mark", ""].ring


def test_background_series_are_grey_and_use_no_colour() -> None:
    styles = assign_styles(chart_of(line("others", connected=False, muted=True), line("a", connected=False)))
    assert styles["others", ""].colour is None
    assert styles["a", ""].colour == 0


def bar(name: str, *names: str, **changes: object) -> Series:
    return Series(**{"name": name, "kind": "bar", "x": names, "y": [1.0] * len(names), **changes})  # type: ignore[arg-type]


def bar_series(*series: Series) -> Chart:
    panel = Panel(x=Axis("way", categories=["x", "y"]), y=Axis("y (s)"), series=series)
    return Chart(name="a", title="A", panels=[panel])


def test_bars_differ_in_colour_and_in_pattern_if_they_share_a_category() -> None:
    separate = assign_styles(bar_series(bar("a", "x"), bar("b", "y")))
    assert [(style.colour, style.pattern) for style in separate.values()] == [(0, ""), (1, "")]
    bar_offsets = assign_styles(bar_series(*(bar(str(number), "x", "y") for number in range(40))))
    assert len({(style.colour, style.pattern) for style in bar_offsets.values()}) == 40
    assert len({style.pattern for style in list(bar_offsets.values())[:8]}) == 8


def test_a_bar_that_copies_another_or_stands_back_or_was_not_measured_is_pale() -> None:
    styles = assign_styles(
        bar_series(bar("a", "x"), bar("b", "x", same_as="a"), bar("c", "y", muted=True), bar("d", "y", dashed=True))
    )
    assert [style.hollow for style in styles.values()] == [False, True, True, True]
    assert styles["b", "a"].colour == 0
    assert styles["c", ""].colour is styles["d", ""].colour is None


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_every_colour_can_be_seen_on_its_background(theme: Theme) -> None:
    for colour in (*theme.series, theme.muted):
        assert contrast(colour, theme.paper) >= 3, colour
    assert contrast(theme.ink, theme.paper) >= 7


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_many_series_all_differ_in_style() -> None:
    many = [line(f"s{number}", connected=False) for number in range(50)]
    assert len(set(assign_styles(chart_of(*many)).values())) == 50
    assert len(LIGHT.series) == len(DARK.series)


def test_a_circle_of_series_that_are_like_one_another_ends() -> None:
    assert assign_styles(chart_of(line("a", same_as="b"), line("b", same_as="a")))["a", "b"] == Style(0)
    assert assign_styles(chart_of(line("a", same_as="a")))["a", "a"] == Style(0)
