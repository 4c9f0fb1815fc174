"""What a figure shows, before anybody draws it: panels with their axes and series, as plain values.

The files beside this one work out one figure each, from records to a `Chart`; `static.py` draws a chart as PNG and SVG,
`interactive.py` for the report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeGuard

Kind = Literal["points", "line", "band", "cross", "bar"]
"""points: measured values, with their intervals; line: a curve that was worked out, or so many values that marks would
hide it; band: the area between low and high; cross: a run that has no value, an oom say; bar: how much of something
each name has, from the foot of the axis, with intervals; only where the x axis has names."""


@dataclass(frozen=True)
class Axis:
    """An axis with its unit in the label."""

    label: str
    log: bool = False
    categories: Sequence[str] = ()
    """Names in their order, where the values are names and not numbers; the x of a point is one of them."""
    from_zero: bool = False
    """Whether 0 is to be seen."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """What belongs together: one entry of the legend."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    kind: Kind = "points"
    low: Sequence[float | None] = ()
    """Ends of the interval of each point, or of the band; empty where there are none."""
    high: Sequence[float | None] = ()
    connected: bool = False
    """Whether values between two points mean something; never between names."""
    dashed: bool = False
    """What was not measured: an ideal, a limit, a fit."""
    muted: bool = False
    """What the other series stand out against."""
    same_as: str = ""
    """Another series, whose colour and mark this one takes: the test curve of a training curve, the band of a fit."""
    runs: Sequence[tuple[str, ...]] = ()
    """run_id of the runs behind each point; empty where there are none."""
    texts: Sequence[str] = ()
    """What to say of each point besides its numbers."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes, or a picture."""

    x: Axis = Axis("")
    y: Axis = Axis("")
    series: Sequence[Series] = ()
    title: str = ""
    picture: str = ""
    """A JPEG in base64 in place of axes; then there are no series."""

    def __post_init__(self) -> None:
        if self.picture and self.series:
            raise ValueError(f"a panel shows a picture or series; {self.series[0].name!r} is beside a picture")
        for series in self.series:
            if series.kind == "bar" and not self.x.categories:
                raise ValueError(f"bars stand on names; {series.name!r} needs categories on the x axis")


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One figure."""

    name: str
    """Names its files: figures/<name>.png."""
    title: str
    panels: Sequence[Panel]
    """Side by side."""
    notes: Sequence[str] = field(default=())
    """What a reader must know to read it, under the figure."""


def is_finite(value: float | None) -> TypeGuard[float]:
    """Whether there is a number to draw."""
    return value is not None and math.isfinite(value)
