"""Where the bars of a panel stand, and what they stand on."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from dmls_ray.analysis.figures.chart import Panel, Series, is_finite
from dmls_ray.analysis.figures.style import SeriesKey, series_key

_WIDE = 0.8
"""Of the room that a name has, what its bars take."""
_ROOM = 1.05
"""How far an axis goes beyond its largest value."""


def bar_offsets(panel: Panel) -> tuple[float, dict[SeriesKey, list[float]]]:
    """How wide each bar is, and for each series how far the middles of its bars are from those of their names.

    Bars at one name stand side by side; one alone stands in the middle. All are as wide as there is room for where most
    of them stand, so that none looks like more than it is.
    """
    at: dict[str, list[SeriesKey]] = {}
    for series in bar_series(panel):
        for name, value in zip(series.x, series.y, strict=True):
            if is_finite(value):
                at.setdefault(str(name), []).append(series_key(series))
    width = _WIDE / max(map(len, at.values()), default=1)

    def middle(name: float | str, key: SeriesKey) -> float:
        here = at.get(str(name), [])
        return (here.index(key) - (len(here) - 1) / 2) * width if key in here else 0.0

    return width, {
        series_key(series): [middle(name, series_key(series)) for name in series.x] for series in bar_series(panel)
    }


def bar_base(panel: Panel) -> float:
    """Where bars begin: at 0, or on a logarithmic axis at the power of ten below all that is drawn there."""
    if not panel.y.log:
        return 0.0
    least = min(_above_zero(panel), default=1.0)
    return max(10.0 ** (math.ceil(math.log10(least)) - 1), sys.float_info.min)


def bar_axis_end(panel: Panel) -> float:
    """Where a logarithmic axis ends: a little above all that is drawn there."""
    low = math.log10(bar_base(panel))
    highest = max(_above_zero(panel), default=0.0)
    # What is less than the least foot lies below it.
    high = max(math.log10(highest), low + 0.1) if highest else low + 1
    return 10.0 ** min(low + _ROOM * (high - low), sys.float_info.max_10_exp)


def _above_zero(panel: Panel) -> list[float]:
    drawn = [value for series in panel.series for value in (*series.y, *series.low, *series.high)]
    return [value for value in drawn if is_finite(value) and value > 0]


def bar_series(panel: Panel) -> Sequence[Series]:
    """The series that are bars."""
    return [series for series in panel.series if series.kind == "bar"]
