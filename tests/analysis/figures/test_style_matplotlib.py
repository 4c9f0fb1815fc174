from __future__ import annotations

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.style import LIGHT
from dmls_ray.analysis.figures.style_matplotlib import BLACK, GREY, legend_entries, matplotlib_styles


def line(name: str, **changes: object) -> Series:
    return Series(**{"name": name, "x": [1, 2], "y": [1.0, 2.0], "connected": True, **changes})  # type: ignore[arg-type]


def chart_of(*series: Series) -> Chart:
    return Chart(name="a", title="A", panels=[Panel(x=Axis("x (s)"), y=Axis("y (s)"), series=series)])


def test_series_differ_in_colour_and_in_mark_also_where_the_colours_are_used_up() -> None:
    looks = matplotlib_styles(chart_of(*(line(str(number)) for number in range(40))))
    assert len({(look.colour, look.mark) for look in looks.values()}) == 40
    first = list(looks.values())[:8]
    assert len({look.colour for look in first}) == len({look.mark for look in first}) == 8


def test_a_name_looks_the_same_in_every_panel() -> None:
    one = Panel(x=Axis("x"), y=Axis("y"), series=[line("a"), line("b")])
    other = Panel(x=Axis("x"), y=Axis("y"), series=[line("b")])
    looks = matplotlib_styles(Chart(name="a", title="A", panels=[one, other]))
    assert list(looks) == [("a", ""), ("b", "")]


def test_what_takes_anothers_look_is_hollow_or_dashed_or_a_cross_in_its_colour() -> None:
    looks = matplotlib_styles(
        chart_of(
            line("test"),
            line("train", same_as="test"),
            line("ideal", kind="line", dashed=True, same_as="test"),
            line("oom", kind="cross", same_as="test"),
        )
    )
    assert {look.colour for look in looks.values()} == {LIGHT.series[0]}
    assert (looks["train", "test"].mark, looks["train", "test"].hollow) == ("o", True)
    assert looks["ideal", "test"].dashes
    assert looks["oom", "test"].mark == "x"


def test_laws_differ_in_their_dashes_and_one_law_has_the_same_for_every_line() -> None:
    laws = [line(name, dashed=True, same_as=other) for other in ("a", "b") for name in ("ideal", "Amdahl")]
    looks = matplotlib_styles(chart_of(line("a"), line("b"), *laws))
    assert looks["ideal", "a"].dashes == looks["ideal", "b"].dashes != looks["Amdahl", "a"].dashes
    assert looks["ideal", "a"].colour != looks["ideal", "b"].colour


def test_points_among_curves_are_rings_and_points_alone_are_not() -> None:
    assert matplotlib_styles(chart_of(line("a"), line("mark", connected=False)))["mark", ""].ring
    assert not matplotlib_styles(chart_of(line("mark", connected=False)))["mark", ""].ring


def test_what_stands_back_is_grey_and_uses_up_no_colour() -> None:
    looks = matplotlib_styles(chart_of(line("others", connected=False, muted=True), line("a", connected=False)))
    assert looks["others", ""].colour == GREY
    assert looks["a", ""].colour == LIGHT.series[0]


def bar(name: str, *names: str, **changes: object) -> Series:
    return Series(**{"name": name, "kind": "bar", "x": names, "y": [1.0] * len(names), **changes})  # type: ignore[arg-type]


def bar_series(*series: Series) -> Chart:
    panel = Panel(x=Axis("way", categories=["x", "y"]), y=Axis("y (s)"), series=series)
    return Chart(name="a", title="A", panels=[panel])


def test_bars_have_colours_of_their_own_and_patterns_where_names_do_not_tell_them_apart() -> None:
    apart = matplotlib_styles(bar_series(bar("a", "x"), bar("b", "y")))
    assert [(look.colour, look.hatch) for look in apart.values()] == [(LIGHT.series[0], ""), (LIGHT.series[1], "")]
    bar_offsets = matplotlib_styles(bar_series(*(bar(str(number), "x", "y") for number in range(40))))
    assert len({(look.colour, look.hatch) for look in bar_offsets.values()}) == 40
    assert len({look.hatch for look in list(bar_offsets.values())[:8]}) == 8


def test_a_bar_like_another_or_that_stands_back_or_was_not_measured_is_pale() -> None:
    looks = matplotlib_styles(
        bar_series(bar("a", "x"), bar("b", "x", same_as="a"), bar("c", "y", muted=True), bar("d", "y", dashed=True))
    )
    assert [look.hollow for look in looks.values()] == [False, True, True, True]
    assert looks["b", "a"].colour == LIGHT.series[0]
    assert looks["c", ""].colour == looks["d", ""].colour == GREY


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
