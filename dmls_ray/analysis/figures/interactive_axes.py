"""The axes of each panel as plotly's layout, and annotations. The page sets the domains and colours of axes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from dmls_ray.analysis.figures.bars import bar_axis_end, bar_base, bar_series
from dmls_ray.analysis.figures.chart import Axis, Panel, Series, is_finite
from dmls_ray.analysis.figures.plotly_text import plain, rounded

_MAX_TICKS = 9
"""Measured values of x that have a tick each."""
_MAX_LINE = 36
"""Characters of one line of a label."""


def axis_name(letter: str, number: int) -> str:
    """plotly's name of an axis: x, x2, x3, ..."""
    return letter if number == 1 else f"{letter}{number}"


def panel_axes(panel: Panel, number: int) -> dict[str, Any]:
    """The two axes of a panel."""
    series = [item for item in panel.series if item.kind != "band"]
    x = _axis(panel.x, [value for item in series for value in item.x])
    y = _axis(panel.y, [value for item in series for value in item.y if value is not None])
    if panel.y.log and bar_series(panel):
        y["range"] = [rounded(math.log10(end)) for end in (bar_base(panel), bar_axis_end(panel))]
    if not panel.x.categories:
        x |= _ticks(panel.x, {value for item in series for value in item.x})
    return _named(x, y, number)


def hidden_axes(panel: Panel, number: int) -> dict[str, Any]:
    """The hidden axes that position a picture; it keeps its aspect ratio, at the upper left of the panel."""
    hidden = {"visible": False, "fixedrange": True, "constrain": "domain"}
    upright = {"constraintoward": "top", "scaleanchor": axis_name("x", number), "autorange": "reversed"}
    return _named(hidden | {"constraintoward": "left"}, hidden | upright, number)


def overlay_axis(number: int) -> dict[str, Any]:
    """A hidden y axis over that of a panel, for the runs without a value along the lower edge."""
    return {
        "overlaying": axis_name("y", number), "anchor": axis_name("x", number), "range": [0, 1],
        "visible": False, "fixedrange": True,
    }  # fmt: skip


def is_on_edge(series: Series) -> bool:
    """Whether a series is drawn along the lower edge: crosses without a height."""
    return series.kind == "cross" and not any(is_finite(value) for value in series.y)


def annotation(text: str, number: int, **position: Any) -> dict[str, Any]:
    """An annotation of a panel, at a position in fractions of its width and height."""
    domains = {f"{letter}ref": f"{axis_name(letter, number)} domain" for letter in "xy"}
    return {"text": text, "showarrow": False, **domains, **position}


def _named(x: dict[str, Any], y: dict[str, Any], number: int) -> dict[str, Any]:
    suffix = "" if number == 1 else str(number)
    x, y = x | {"anchor": axis_name("y", number)}, y | {"anchor": axis_name("x", number)}
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def _axis(axis: Axis, values: Sequence[float | str]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "title": {"text": wrapped(axis.label), "standoff": 8, "font": {"size": 13}},
        "automargin": True,
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "hoverformat": ",.5~r",
    }
    if axis.categories:
        # All categories are shown, also those without points.
        names = [plain(str(name)) for name in axis.categories]
        ends = {"range": [-0.5, len(names) - 0.5], "showgrid": False}
        return options | {"type": "category", "categoryorder": "array", "categoryarray": names} | ends

    sizes = [abs(value) for value in values if isinstance(value, int | float) and math.isfinite(value) and value]
    # Powers of ten only for numbers with many digits.
    has_few_digits = not sizes or (max(sizes) < 1e9 and min(sizes) >= 1e-4)
    options |= {"exponentformat": "none" if has_few_digits else "power", "separatethousands": True}
    if axis.log:
        return options | {"type": "log"}
    return options | {"type": "linear", "rangemode": "tozero" if axis.from_zero else "normal"}


def wrapped(label: str) -> str:
    """A label in lines that fit the height of a panel."""
    return "<br>".join(plain(line) for line in textwrap.wrap(label, _MAX_LINE)) or plain(label)


def _ticks(axis: Axis, values: Iterable[float | str]) -> dict[str, Any]:
    """A tick at each value, if they are few, round and far enough from each other; otherwise plotly's own ticks."""
    ticks = sorted(value for value in values if isinstance(value, int | float) and math.isfinite(value))
    if not 1 <= len(ticks) <= _MAX_TICKS or not all(axis.log or float(value).is_integer() for value in ticks):
        return {}
    if axis.log and ticks[0] <= 0:
        return {}

    positions = [math.log(value) for value in ticks] if axis.log else ticks
    start = min(0.0 if axis.from_zero and not axis.log else positions[0], positions[0])
    gaps = [after - before for before, after in pairwise(positions)]
    if min(gaps, default=1.0) < 0.05 * (positions[-1] - start):
        return {}
    return {"tickmode": "array", "tickvals": ticks, "ticktext": [f"{value:,.6g}" for value in ticks]}
