"""Colours and marks of figures on a screen, light or dark, and which series has which.

The hues are those of Okabe & Ito, "Color Universal Design" (2008): people who see fewer colours tell them apart too.
Those that are too pale for white, or too dark for a dark page, are moved until they have a contrast of 3 to 1, as WCAG
2.2 asks of graphics. A colour never stands alone: marks differ with it, or dashes; bars have their names below them,
and where several share a name they differ in their patterns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dmls_ray.analysis.figures.chart import Chart, Panel, Series


@dataclass(frozen=True, kw_only=True)
class Theme:
    """What a figure is drawn with on one background."""

    paper: str
    ink: str
    """Text."""
    muted: str
    """Axes, and what is of no one series."""
    grid: str
    series: tuple[str, ...]
    """In the order of `Style.colour`."""


LIGHT = Theme(
    paper="#ffffff",
    ink="#1c2128",
    muted="#59636e",
    grid="#e4e7eb",
    series=("#0072b2", "#d55e00", "#009e73", "#b5538a", "#b57d00", "#3a96cf", "#1c2128", "#8a7f00"),
)
DARK = Theme(
    paper="#14171c",
    ink="#e3e6ea",
    muted="#98a1ac",
    grid="#2a3038",
    series=("#3d9be0", "#e8701a", "#15b88a", "#cc79a7", "#e69f00", "#8fd0f5", "#e3e6ea", "#f0e442"),
)

MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "hexagon")
"""By plotly's names."""
DASHES = ("dash", "dot", "dashdot", "longdashdot")
"""Likewise."""
PATTERNS = ("", "/", "\\", "x", "-", "|", "+", ".")
"""Likewise, of bars."""


@dataclass(frozen=True)
class Style:
    """How a series is drawn."""

    colour: int | None = None
    """Its place in the colours of a theme; None: muted."""
    mark: str = "circle"
    dash: str = "solid"
    pattern: str = ""
    """Of a bar."""
    hollow: bool = False
    """Whether the mark is an outline, or a bar pale: of the second series of a pair, say."""
    ring: bool = False
    """Whether it goes around other series' marks: it marks a place on a curve."""
    order: int = 0
    """How many series of a colour of their own come before it."""


SeriesKey = tuple[str, str]
"""A series' name and its `same_as`: the crosses of two lines have one name."""


def series_key(series: Series) -> SeriesKey:
    return series.name, series.same_as


def assign_styles(chart: Chart) -> dict[SeriesKey, Style]:
    """The style of every series, the same in all panels."""
    everything = [(panel, series) for panel in chart.panels for series in panel.series]
    patterned = any(map(_bars_share_a_name, chart.panels))
    told: dict[SeriesKey, Style] = {}
    by_name: dict[str, Style] = {}
    dashes: dict[str, str] = {}
    own = 0
    # What others are like comes first, wherever it stands.
    for panel, series in sorted(everything, key=lambda item: bool(item[1].same_as)):
        if series_key(series) in told:
            continue
        like = by_name.get(series.same_as)
        if series.dashed:
            # One pattern a law, whichever line it belongs to.
            dash = dashes.setdefault(series.name, DASHES[len(dashes) % len(DASHES)])
            style = Style(like.colour if like else None, dash=dash)
        elif like is not None:
            style = replace(like, dash="solid", hollow=True)
        elif series.kind == "cross":
            style = Style()
        elif series.muted:
            style = Style(hollow=True)
        elif _marks_places(series, panel):
            style = Style(hollow=True, ring=True)
        else:
            # After as many series as there are colours the marks begin with another one.
            count = len(LIGHT.series)
            other = own + own // count
            pattern = PATTERNS[other % len(PATTERNS)] if patterned and series.kind == "bar" else ""
            style = Style(own % count, MARKS[other % len(MARKS)], pattern=pattern, order=own)
            own += 1
        told[series_key(series)] = style
        by_name.setdefault(series.name, style)
    return told


def _marks_places(series: Series, panel: Panel) -> bool:
    return series.kind == "points" and not series.connected and any(other.connected for other in panel.series)


def _bars_share_a_name(panel: Panel) -> bool:
    names = [name for series in panel.series if series.kind == "bar" for name in series.x]
    return len(set(names)) < len(names)
