"""How each series of a chart looks on paper: by colour, and by mark or dashes besides, for the colour-blind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dmls_ray.analysis.figures.chart import Chart, Panel, Series
from dmls_ray.analysis.figures.style import DASHES, MARKS, PATTERNS, Style, assign_styles, series_key

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
_MARKS = dict(zip(MARKS, ("o", "s", "^", "D", "v", "P", "X", "h"), strict=True))
"""By matplotlib's names."""
_DASHES: dict[str, tuple[float, ...]] = dict(
    zip(DASHES, ((5, 2), (1, 1.5), (6, 2, 1, 2), (3, 1.5, 1, 1.5, 1, 1.5)), strict=True)
)
"""Lengths of a dash and of the gap after it, in widths of the line."""
_HATCHES = dict(zip(PATTERNS, ("", "//", "\\\\", "xx", "--", "||", "++", ".."), strict=True))
"""By matplotlib's names."""
GREY, BLACK = "#666666", "#000000"


@dataclass(frozen=True)
class MatplotlibStyle:
    """How a series is drawn."""

    colour: str
    mark: str = ""
    dashes: tuple[float, ...] = ()
    hatch: str = ""
    """Of a bar."""
    hollow: bool = False
    """Whether the mark is an outline, or a bar pale: of the second series of a pair, say."""
    ring: bool = False
    """Whether it is drawn around other series' marks: it marks a place on a curve."""
    depth: int = 0
    """How many series lie below: the more, the finer it is drawn, so that what coincides can be told."""


def matplotlib_styles(chart: Chart) -> dict[tuple[str, str], MatplotlibStyle]:
    """The look of each series, by its name and `same_as`; the same in all panels."""
    told = assign_styles(chart)
    return {series_key(series): _look(series, told[series_key(series)]) for _, series in iter_series(chart)}


def _look(series: Series, style: Style) -> MatplotlibStyle:
    if style.colour is not None:
        colour = COLOURS[style.colour]
    else:
        colour = BLACK if series.kind == "cross" or style.ring else GREY
    if series.kind == "bar":
        return MatplotlibStyle(colour, hatch=_HATCHES[style.pattern], hollow=style.hollow or series.dashed)
    if series.dashed:
        return MatplotlibStyle(colour, dashes=_DASHES[style.dash])
    if series.kind == "cross":
        return MatplotlibStyle(colour, "x", depth=style.order % len(_MARKS))
    if series.muted:
        return MatplotlibStyle(colour, _MARKS[style.mark], hollow=True, depth=len(_MARKS))
    return MatplotlibStyle(
        colour, _MARKS[style.mark], hollow=style.hollow, ring=style.ring, depth=style.order % len(_MARKS)
    )


def legend_entries(chart: Chart) -> dict[str, tuple[Series, MatplotlibStyle]]:
    """Name -> the series that stands for it in the legend, what was measured first; empty where one needs no name.

    What several lines have of one name, an ideal say, stands there without a colour.
    """
    looks = matplotlib_styles(chart)
    everything = [series for _, series in iter_series(chart)]
    named: dict[str, Series] = {}
    for series in sorted(everything, key=lambda item: (_is_worked_out(item), item.kind == "cross", item.muted)):
        named.setdefault(series.name, series)
    if len(named) < 2:
        return {}
    shared = {name for name, _ in looks if sum(name == other for other, _ in looks) > 1}
    neutral = {name: BLACK if series.kind == "cross" else GREY for name, series in named.items() if name in shared}
    entries = {}
    for name, series in named.items():
        look = looks[series.name, series.same_as]
        entries[name] = (series, replace(look, colour=neutral.get(name, look.colour)))
    return entries


def _is_worked_out(series: Series) -> bool:
    return series.dashed or series.kind == "band"


def iter_series(chart: Chart) -> Iterator[tuple[Panel, Series]]:
    """All series, each with its panel."""
    for panel in chart.panels:
        for series in panel.series:
            yield panel, series
