"""Colours, marks and dashes of figures, and which series has which.

The hues are those of Okabe & Ito, "Color Universal Design" (2008), which colour-blind readers can distinguish. Hues too
pale for a white page or too dark for a dark one are changed until their contrast is 3 to 1, as WCAG 2.2 requires of
graphics. Marks or dashes differ together with the colour. Bars have names below them; bars with the same name differ
in their patterns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dmls_ray.analysis.figures.chart import Chart, Panel, Series, SeriesKey


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of a figure on one background."""

    paper: str
    ink: str
    """Text."""
    muted: str
    """Axes, and what belongs to no single series."""
    grid: str
    series: tuple[str, ...]
    """Indexed by `Style.colour`."""


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

AXIS_MARGIN = 1.05
"""End of an axis by its largest value."""

MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "hexagon")
"""plotly's names of marks."""
BOUND_MARK = "triangle-up"
DASHES = ("dash", "dot", "dashdot", "longdashdot")
"""plotly's names of line styles."""
PATTERNS = ("", "/", "\\", "x", "-", "|", "+", ".")
"""plotly's names of bar patterns."""


@dataclass(frozen=True)
class Style:
    """How a series is drawn."""

    colour: int | None = None
    """Index in the colours of a theme; None: muted."""
    mark: str = "circle"
    dash: str = "solid"
    pattern: str = ""
    """Pattern of a bar."""
    hollow: bool = False
    """Whether the mark is an outline, or a bar pale: the second series of a pair, for example."""
    ring: bool = False
    """Whether the mark goes around the marks of other series: it marks a point of a curve."""
    depth: int = 0
    """Number of series drawn below; a higher one is drawn finer, so that coinciding series stay visible."""


def assign_styles(chart: Chart) -> dict[SeriesKey, Style]:
    """The style of every series, the same in all panels."""
    everything = [(panel, series) for panel in chart.panels for series in panel.series]
    patterned = any(map(_bars_share_a_name, chart.panels))
    assigned: dict[SeriesKey, Style] = {}
    by_name: dict[str, Style] = {}
    dashes: dict[str, str] = {}
    coloured = 0

    # Style reference series come first; others copy from them.
    for panel, series in sorted(everything, key=lambda item: bool(item[1].same_as)):
        if series.key in assigned:
            continue
        reference = by_name.get(series.same_as)
        if series.dashed:
            # One line style for each law, whichever line it belongs to.
            dash = dashes.setdefault(series.name, DASHES[len(dashes) % len(DASHES)])
            style = Style(reference.colour if reference else None, dash=dash, hollow=series.kind == "bar")
        elif series.kind == "bound":
            # Points upwards, to where the value lies.
            style = Style(reference.colour if reference else None, BOUND_MARK, hollow=True)
        elif reference is not None:
            style = replace(reference, dash="solid", hollow=True)
        elif series.kind == "cross":
            style = Style()
        elif series.muted:
            style = Style(hollow=True, depth=len(MARKS))
        elif _marks_points_of_curves(series, panel):
            style = Style(hollow=True, ring=True)
        else:
            # When all colours are used, they start again with the marks shifted by one.
            count = len(LIGHT.series)
            shifted = coloured + coloured // count
            pattern = PATTERNS[shifted % len(PATTERNS)] if patterned and series.kind == "bar" else ""
            mark = MARKS[shifted % len(MARKS)]
            style = Style(coloured % count, mark, pattern=pattern, depth=coloured % len(MARKS))
            coloured += 1
        assigned[series.key] = style
        by_name.setdefault(series.name, style)
    return assigned


def _marks_points_of_curves(series: Series, panel: Panel) -> bool:
    return series.kind == "points" and not series.connected and any(item.connected for item in panel.series)


def _bars_share_a_name(panel: Panel) -> bool:
    names = [name for series in panel.series if series.kind == "bar" for name in series.x]
    return len(set(names)) < len(names)
