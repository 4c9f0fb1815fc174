"""Colours, marks and dashes of figures: a name has the same in all figures of a report.

The hues of the series are those of Okabe & Ito, "Color Universal Design" (2008), which colour-blind readers can
distinguish. Hues too pale for a white page or too dark for a dark one are changed until their contrast is 3 to 1, as
WCAG 2.2 requires of graphics. Marks or dashes differ together with the colour. Bars that share a category have the
colours of viridis, whose lightness grows along the legend, so that a grey print distinguishes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from dmls_ray.analysis.figures.chart import Chart, Panel, PlotSeries

SERIES_COLOURS = 8
PART_COLOURS = 8

LIGHT: Mapping[str, str] = {
    "paper": "#ffffff", "ink": "#1c2128", "muted": "#59636e", "grid": "#e4e7eb",
    "series0": "#0072b2", "series1": "#d55e00", "series2": "#009e73", "series3": "#b5538a",
    "series4": "#b57d00", "series5": "#3a96cf", "series6": "#1c2128", "series7": "#8a7f00",
    "part0": "#482475", "part1": "#3e4989", "part2": "#306a8e", "part3": "#24878e",
    "part4": "#20a486", "part5": "#48c16e", "part6": "#8ed645", "part7": "#dfe318",
}  # fmt: skip
DARK: Mapping[str, str] = {
    "paper": "#14171c", "ink": "#e3e6ea", "muted": "#98a1ac", "grid": "#2a3038",
    "series0": "#3d9be0", "series1": "#e8701a", "series2": "#15b88a", "series3": "#cc79a7",
    "series4": "#e69f00", "series5": "#8fd0f5", "series6": "#e3e6ea", "series7": "#f0e442",
    "part0": "#375a8c", "part1": "#2b748e", "part2": "#228d8d", "part3": "#21a585",
    "part4": "#40bd72", "part5": "#77d153", "part6": "#bade28", "part7": "#fde725",
}  # fmt: skip
PAGE: Mapping[str, str] = {name: f"var(--{name})" for name in LIGHT}
"""Names of the colours in a page, whose style sheet has their values for the screen and for paper."""

CROSS = "M-1,-0.6L-0.6,-1L0,-0.4L0.6,-1L1,-0.6L0.4,0L1,0.6L0.6,1L0,0.4L-0.6,1L-1,0.6L-0.4,0Z"
_HEXAGON = "M0,-1L0.87,-0.5L0.87,0.5L0,1L-0.87,0.5L-0.87,-0.5Z"
_STAR = "M0,-1L0.22,-0.31L0.95,-0.31L0.36,0.12L0.59,0.81L0,0.38L-0.59,0.81L-0.36,0.12L-0.95,-0.31L-0.22,-0.31Z"
MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", _STAR, _HEXAGON)
"""Vega's names of marks, or their outlines."""
DASHES = ([5, 3], [2, 2], [7, 3, 2, 3], [3, 2, 1, 2, 1, 2])
"""Lengths of dashes and gaps in pixels."""

_RING_SIZE = 230


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a series is drawn."""

    colour: str = "muted"
    """Name of a colour of a theme."""
    mark: str = "circle"
    size: int = 60
    """Area of a mark in square pixels."""
    dash: Sequence[float] = ()
    hollow: bool = False
    """Whether the mark is an outline: the second series of a pair, for example."""


class Styles:
    """The style of each series of some charts."""

    def __init__(self, charts: Sequence[Chart]) -> None:
        self._numbers = _numbers(charts)
        self._dashes: dict[str, Sequence[float]] = {}
        for chart in charts:
            for panel in chart.panels:
                for series in panel.series:
                    if series.dashed:
                        self._dashes.setdefault(series.name, DASHES[len(self._dashes) % len(DASHES)])

    def of(self, series: PlotSeries, panel: Panel) -> Style:
        """The style of a series of a panel."""
        if panel.stacked:
            # Spread over all colours, in the order of the bars.
            place = [item.name for item in panel.series].index(series.name)
            return Style(colour=f"part{round(place * (PART_COLOURS - 1) / max(len(panel.series) - 1, 1))}")
        colour, mark = "muted", MARKS[0]
        number = self._numbers.get(series.same_as or series.name)
        if number is not None:
            colour = f"series{number % SERIES_COLOURS}"
            # When all colours are used, they start again with the marks shifted by one.
            mark = MARKS[(number + number // SERIES_COLOURS) % len(MARKS)]
        elif series.kind in ("cross", "ring"):
            colour = "ink"
        if series.kind == "ring":
            return Style(colour=colour, hollow=True, size=_RING_SIZE)
        if series.dashed:
            return Style(colour=colour, dash=self._dashes[series.name])
        if series.kind == "cross":
            return Style(colour=colour, mark=CROSS)
        return Style(colour=colour, mark=mark, hollow=bool(series.same_as) or series.muted)


def _numbers(charts: Sequence[Chart]) -> dict[str, int]:
    """A number for each measured name: the smallest that no other name has which shares a chart with it."""
    numbers: dict[str, int] = {}
    names_of = [_measured_names(chart) for chart in charts]
    for name in chain.from_iterable(names_of):
        neighbours = chain.from_iterable(names for names in names_of if name in names)
        taken = {numbers.get(neighbour) for neighbour in neighbours}
        numbers.setdefault(name, min({*range(len(taken) + 1)} - taken))
    return numbers


def _measured_names(chart: Chart) -> list[str]:
    """The names of series that have a colour which no other series has."""
    names: dict[str, None] = {}
    for panel in chart.panels:
        for series in panel.series:
            is_second = series.same_as or series.muted or series.dashed or series.kind in ("cross", "ring")
            if not (panel.stacked or is_second):
                names[series.name] = None
    return list(names)
