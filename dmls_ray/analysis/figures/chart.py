"""`Chart`: the content of a figure as plain values, before it is drawn.

Each figure has a module that makes its `Chart` from a table. `vega.py` draws every chart, for the report and as files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeGuard

Kind = Literal["points", "bound", "line", "band", "cross", "bar"]
"""points: measured values with intervals. bound: lower limits of values that are not known. line: a calculated curve,
or too many values for marks. band: the area from low to high. cross: a run without a value, such as an OOM. bar: an
amount per category with its interval; only where the x axis has categories."""

MAX_CATEGORIES = 16
"""Categories of an axis whose names can be read."""


@dataclass(frozen=True)
class Axis:
    """An axis; its label contains the unit."""

    label: str
    log: bool = False
    categories: Sequence[str] = ()
    """Ordered categories, if the values are not numbers; the x of a point is one of them."""
    from_zero: bool = False
    """Whether the axis includes 0."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Values with one entry in the legend."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    kind: Kind = "points"
    low: Sequence[float | None] = ()
    """Lower ends of the intervals of the points, or of the band; empty without intervals."""
    high: Sequence[float | None] = ()
    connected: bool = False
    """Whether a line joins the points; never between categories."""
    dashed: bool = False
    """Whether the values were not measured: an ideal, a limit, a fit."""
    muted: bool = False
    """Whether the series is background for the others."""
    same_as: str = ""
    """Name of the series whose colour and mark this one copies: a training curve copies its test curve."""
    runs: Sequence[tuple[str, ...]] = ()
    """run_id of the runs behind each point; empty without runs."""
    texts: Sequence[str] = ()
    """Text of each point besides its numbers."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A pair of axes, or a picture."""

    x: Axis = Axis("")
    y: Axis = Axis("")
    series: Sequence[Series] = ()
    title: str = ""
    stacked: bool = False
    """Whether the bars of a category stand on each other: they are parts of one amount."""
    picture: str = ""
    """A JPEG in base64 instead of axes and series."""

    def __post_init__(self) -> None:
        if self.picture and self.series:
            raise ValueError(f"a panel has a picture or series, not both; it has a picture and {self.series[0].name!r}")
        for series in self.series:
            if self.stacked and (self.y.log or series.kind != "bar"):
                raise ValueError(f"{series.name!r} cannot be stacked: only bars on a linear axis can")
            if series.kind == "bar" and not self.x.categories:
                raise ValueError(f"the bars of {series.name!r} need categories on the x axis")


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One figure."""

    name: str
    """Name of its files: figures/<name>.png."""
    title: str
    panels: Sequence[Panel]
    """Drawn side by side."""
    notes: Sequence[str] = field(default=())
    """Sentences below the figure."""

    @property
    def shared_scales(self) -> list[list[int]]:
        """The places of panels that show one quantity, and so have one scale: those with equal linear y axes."""
        by_axis: dict[Axis, list[int]] = {}
        for place, panel in enumerate(self.panels):
            if not (panel.picture or panel.y.log or panel.y.categories):
                by_axis.setdefault(panel.y, []).append(place)
        return [places for places in by_axis.values() if len(places) > 1]


def is_finite(value: float | None) -> TypeGuard[float]:
    """Whether the value is a number that can be drawn."""
    return value is not None and math.isfinite(value)


def rounded(value: float, digits: int = 5) -> float | None:
    """A number to so many digits, a whole one as int; None if it is not finite."""
    if not math.isfinite(value):
        return None
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return int(value)
    return float(f"{value:.{digits}g}")
