"""Positions of bars within a panel, and the ends of the axis below and above them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from dmls_ray.analysis.figures.chart import Panel, Series, SeriesKey, is_finite
from dmls_ray.analysis.figures.style import AXIS_MARGIN

_BARS_WIDTH = 0.8
"""Width of all bars of a category, as a fraction of the distance between categories."""


def bar_offsets(panel: Panel) -> tuple[float, dict[SeriesKey, list[float]]]:
    """The width of a bar, and for each series the distance of each bar from the middle of its category.

    The bars of a category are drawn side by side, unless they are stacked. All bars have the width that fits the
    fullest category, so that areas are comparable.
    """
    if panel.stacked:
        return _BARS_WIDTH, {series.key: [0.0] * len(series.x) for series in bar_series(panel)}
    by_category: dict[str, list[SeriesKey]] = {}
    for series in bar_series(panel):
        for category, value in zip(series.x, series.y, strict=True):
            if is_finite(value):
                by_category.setdefault(str(category), []).append(series.key)
    width = _BARS_WIDTH / max(map(len, by_category.values()), default=1)

    def offset(category: float | str, key: SeriesKey) -> float:
        keys = by_category.get(str(category), [])
        return (keys.index(key) - (len(keys) - 1) / 2) * width if key in keys else 0.0

    return width, {series.key: [offset(category, series.key) for category in series.x] for series in bar_series(panel)}


def bar_bases(panel: Panel) -> dict[SeriesKey, list[float]]:
    """The value at which each bar of a series begins."""
    if not panel.stacked:
        return {series.key: [bar_base(panel)] * len(series.x) for series in bar_series(panel)}
    tops: dict[str, float] = {}
    bases: dict[SeriesKey, list[float]] = {}
    for series in bar_series(panel):
        bases[series.key] = [tops.get(str(category), 0.0) for category in series.x]
        for category, value in zip(series.x, series.y, strict=True):
            if is_finite(value):
                tops[str(category)] = tops.get(str(category), 0.0) + value
    return bases


def bar_base(panel: Panel) -> float:
    """The value at which bars begin: 0, or on a logarithmic axis the power of ten below all values."""
    if not panel.y.log:
        return 0.0
    least = min(_positive_values(panel), default=1.0)
    return max(10.0 ** (math.ceil(math.log10(least)) - 1), sys.float_info.min)


def bar_axis_end(panel: Panel) -> float:
    """The end of a logarithmic axis: a little above all values."""
    low = math.log10(bar_base(panel))
    highest = max(_positive_values(panel), default=0.0)
    # Values below the smallest normal number lie below the base.
    high = max(math.log10(highest), low + 0.1) if highest else low + 1
    return 10.0 ** min(low + AXIS_MARGIN * (high - low), sys.float_info.max_10_exp)


def bar_series(panel: Panel) -> Sequence[Series]:
    """The series that are drawn as bars."""
    return [series for series in panel.series if series.kind == "bar"]


def _positive_values(panel: Panel) -> list[float]:
    values = [value for series in panel.series for value in (*series.y, *series.low, *series.high)]
    return [value for value in values if is_finite(value) and value > 0]
