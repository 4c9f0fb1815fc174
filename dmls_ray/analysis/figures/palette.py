"""Colours and marks of figures, the same on paper, on a light screen and on a dark one.

The hues are Okabe and Ito's, which people who see fewer colours tell apart as well (jfly.uni-koeln.de/color). Those
that are too pale for white, or too dark for a dark page, are moved until they have a contrast of 3 to 1, as WCAG 2.2
asks of graphics. A colour never stands alone: marks differ with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dmls_ray.analysis.figures.chart import Chart, Series


@dataclass(frozen=True, kw_only=True)
class Theme:
    """What a figure is drawn with on one background."""

    paper: str
    ink: str
    """Text."""
    muted: str
    """Axes, and crosses, which are of no series."""
    grid: str
    series: tuple[str, ...]
    """In the order of `Style.colour`."""


LIGHT = Theme(
    paper="#ffffff",
    ink="#1c2128",
    muted="#59636e",
    grid="#e4e7eb",
    series=("#0072b2", "#d55e00", "#009e73", "#b5538a", "#b57d00", "#3a96cf", "#666666"),
)
DARK = Theme(
    paper="#14171c",
    ink="#e3e6ea",
    muted="#98a1ac",
    grid="#2a3038",
    series=("#3d9be0", "#e8701a", "#15b88a", "#cc79a7", "#e69f00", "#8fd0f5", "#b0b0b0"),
)

MARKS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon", "star")
"""In the order of `Style.mark`, by plotly's names; as many as have no divisor in common with the colours, so that pairs
of both repeat late."""

MATPLOTLIB_MARKS = ("o", "s", "D", "^", "v", "p", "h", "*")
"""The same by matplotlib's."""


@dataclass(frozen=True)
class Style:
    """Places in the colours of a theme and in the marks."""

    colour: int | None
    """None: of no series, drawn as muted."""
    mark: int


def styles(chart: Chart) -> dict[str, Style]:
    """The style of every series of a chart by its name, which is the same in all panels."""
    every = {series.name: series for panel in chart.panels for series in panel.series}
    roots: dict[str, int] = {}
    for name in _roots(every.values(), every):
        roots.setdefault(name, len(roots))
    told = {}
    for name, series in every.items():
        root = root_of(series, every)
        if root in roots:
            told[name] = Style(roots[root] % len(LIGHT.series), roots[root] % len(MARKS))
        else:
            told[name] = Style(None, 0)
    return told


def root_of(series: Series, every: Mapping[str, Series]) -> str:
    """The name of the series whose style this one has: where following `same_as` ends."""
    seen = {series.name}
    name = series.name
    while (before := every.get(name)) is not None and before.same_as and before.same_as not in seen:
        name = before.same_as
        seen.add(name)
    return name


def _roots(all_series: Iterable[Series], every: Mapping[str, Series]) -> Iterable[str]:
    for series in all_series:
        if series.kind != "cross" or series.same_as:
            yield root_of(series, every)
