"""`Chart`: the content of a figure as plain values, before it is drawn.

Each figure has a module that makes its `Chart` from a table. `vega.py` draws every chart, for the report and as files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

SeriesKind = Literal["points", "ring", "line", "band", "cross", "bar"]
"""points: measured values with intervals. ring: points of other series that are marked. line: a calculated curve, or
too many values for marks; with intervals also the band between their ends. band: this area alone. cross: a run without
a value, such as an OOM. bar: an amount per category with its interval; only where the x axis has categories, and the y
axis begins at 0 or is logarithmic."""

_MOST_ERROR_BARS = 8
"""Joined points with error bars; with more points the intervals are a band."""

MAX_CATEGORIES = 16
"""Categories of an axis whose names can be read."""


@dataclass(frozen=True)
class PlotAxis:
    """An axis; its label contains the unit."""

    label: str
    log: bool = False
    categories: Sequence[str] = ()
    """Ordered categories, if the values are not numbers; the x of a point is one of them."""
    from_zero: bool = False
    """Whether the axis includes 0."""
    ticks: Sequence[float] = ()
    """Values with a tick; empty: round values."""


class Point(NamedTuple):
    """A point of a series."""

    x: float | str
    y: float | None
    low: float | None = None
    """Lower end of its interval, or of a band."""
    high: float | None = None
    runs: tuple[str, ...] = ()
    """run_id of the runs behind it."""
    text: str = ""
    """What is said of it besides its numbers."""


@dataclass(frozen=True)
class PlotSeries:
    """Values with one entry in the legend."""

    name: str
    points: Sequence[Point]
    kind: SeriesKind = "points"
    connected: bool = False
    """Whether a line joins the points, which must be numbers."""
    dashed: bool = False
    """Whether the values were not measured: an ideal, a limit, a fit."""
    muted: bool = False
    """Whether the series is background for the others."""
    same_as: str = ""
    """Name of the series whose colour and mark this one copies: a training curve copies its test curve."""

    @property
    def is_joined(self) -> bool:
        return self.kind == "line" or self.connected

    @property
    def intervals(self) -> Literal["none", "error bars", "band"]:
        """How its intervals are drawn."""
        if all(point.low is None for point in self.points):
            return "none"
        if self.kind in ("line", "band") or (self.connected and len(self.points) > _MOST_ERROR_BARS):
            return "band"
        return "error bars"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A pair of axes, or a picture."""

    x: PlotAxis = PlotAxis("")
    y: PlotAxis = PlotAxis("")
    """Panels whose y axes have one label have one scale."""
    series: Sequence[PlotSeries] = ()
    title: str = ""
    stacked: bool = False
    """Whether the bars of a category stand on each other: they are parts of one amount."""
    picture: str = ""
    """A JPEG in base64 instead of axes and series."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One figure."""

    name: str
    """Name of its files: figures/<name>.png."""
    title: str
    panels: Sequence[Panel]
    """Drawn side by side."""
    notes: Sequence[str] = ()
    """Sentences below the figure."""


def rounded(value: float, digits: int = 5) -> float | None:
    """A number to so many digits, a whole one as int; None if it is not finite."""
    if not math.isfinite(value):
        return None
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return int(value)
    return float(f"{value:.{digits}g}")
