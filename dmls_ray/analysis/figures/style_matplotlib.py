"""The style of each series in matplotlib: a colour, and a mark or dashes as well for colour-blind readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dmls_ray.analysis.figures.chart import Chart, Panel, Series
from dmls_ray.analysis.figures.style import (
    DASHES,
    LIGHT,
    MARKS,
    PATTERNS,
    SeriesKey,
    Style,
    assign_styles,
    series_key,
)

_MARKS = dict(zip(MARKS, ("o", "s", "^", "D", "v", "P", "X", "h"), strict=True))
"""plotly's name of a mark -> matplotlib's."""
_DASHES: dict[str, tuple[float, ...]] = dict(
    zip(DASHES, ((5, 2), (1, 1.5), (6, 2, 1, 2), (3, 1.5, 1, 1.5, 1, 1.5)), strict=True)
)
"""plotly's name of a line style -> lengths of dashes and gaps, in widths of the line."""
_HATCHES = dict(zip(PATTERNS, ("", "//", "\\\\", "xx", "--", "||", "++", ".."), strict=True))
"""plotly's pattern of a bar -> matplotlib's hatch."""
GREY, BLACK = LIGHT.muted, LIGHT.ink


@dataclass(frozen=True)
class MatplotlibStyle:
    """How matplotlib draws a series."""

    colour: str
    mark: str = ""
    dashes: tuple[float, ...] = ()
    hatch: str = ""
    """Hatch of a bar."""
    hollow: bool = False
    """Whether the mark is an outline, or a bar pale: the second series of a pair, for example."""
    ring: bool = False
    """Whether the mark goes around the marks of other series: it marks a point of a curve."""
    depth: int = 0
    """Number of series drawn below; a higher one is drawn finer, so that coinciding series stay visible."""


def matplotlib_styles(chart: Chart) -> dict[SeriesKey, MatplotlibStyle]:
    """The style of each series, the same in all panels."""
    styles = assign_styles(chart)
    return {
        series_key(series): _matplotlib_style(series, styles[series_key(series)]) for _, series in iter_series(chart)
    }


def _matplotlib_style(series: Series, style: Style) -> MatplotlibStyle:
    if style.colour is not None:
        colour = LIGHT.series[style.colour]
    else:
        colour = BLACK if series.kind == "cross" or style.ring else GREY
    depth = style.order % len(_MARKS)
    if series.kind == "bar":
        return MatplotlibStyle(colour, hatch=_HATCHES[style.pattern], hollow=style.hollow or series.dashed)
    if series.dashed:
        return MatplotlibStyle(colour, dashes=_DASHES[style.dash])
    if series.kind == "cross":
        return MatplotlibStyle(colour, "x", depth=depth)
    if series.muted:
        return MatplotlibStyle(colour, _MARKS[style.mark], hollow=True, depth=len(_MARKS))
    return MatplotlibStyle(colour, _MARKS[style.mark], hollow=style.hollow, ring=style.ring, depth=depth)


def legend_entries(chart: Chart) -> dict[str, tuple[Series, MatplotlibStyle]]:
    """Name -> the series that represents it in the legend, measured series first; empty for a single name.

    A name that several lines share, such as that of an ideal, has no colour in the legend.
    """
    styles = matplotlib_styles(chart)
    all_series = [series for _, series in iter_series(chart)]
    by_name: dict[str, Series] = {}
    for series in sorted(all_series, key=lambda item: (_is_calculated(item), item.kind == "cross", item.muted)):
        by_name.setdefault(series.name, series)
    if len(by_name) < 2:
        return {}

    names = [name for name, _ in styles]
    entries = {}
    for name, series in by_name.items():
        style = styles[series_key(series)]
        if names.count(name) > 1:
            style = replace(style, colour=BLACK if series.kind == "cross" else GREY)
        entries[name] = (series, style)
    return entries


def _is_calculated(series: Series) -> bool:
    return series.dashed or series.kind == "band"


def iter_series(chart: Chart) -> Iterator[tuple[Panel, Series]]:
    """All series with their panels."""
    for panel in chart.panels:
        for series in panel.series:
            yield panel, series
