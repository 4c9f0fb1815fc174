"""One panel of a chart on matplotlib axes: its series, scales and ticks."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmls_ray.analysis.figures.bars import bar_bases, bar_offsets
from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Axis, Panel, Series, SeriesKey, is_finite
from dmls_ray.analysis.figures.jpeg import REFUSED, decode_jpeg
from dmls_ray.analysis.figures.style import AXIS_MARGIN, DASHES, LIGHT, MARKS, PATTERNS, Style
from dmls_ray.util.text import escape_control_chars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY, BLACK = LIGHT.muted, LIGHT.ink

# plotly's names -> matplotlib's; dashes as lengths of dashes and gaps, in widths of the line.
_MARKS = dict(zip(MARKS, ("o", "s", "^", "D", "v", "P", "X", "h"), strict=True))
_DASHES = dict(zip(DASHES, ((5, 2), (1, 1.5), (6, 2, 1, 2), (3, 1.5, 1, 1.5, 1, 1.5)), strict=True))
_HATCHES = dict(zip(PATTERNS, ("", "//", "\\\\", "xx", "--", "||", "++", ".."), strict=True))

_MAX_ERROR_BARS = 8
"""Connected points with error bars; with more points the intervals are a shaded area."""
_MARKS_PER_LINE = 6
_MAX_TICKS = 8
"""Measured values that are used as ticks of a logarithmic axis."""
_MAX_DECADES = 5
"""Powers of ten up to which a logarithmic axis has ticks at 2 and 5."""
_MAX_LABEL = 36
"""Characters that fit along the height of a panel."""


def draw_picture(axes: Axes, panel: Panel) -> None:
    """Draw the picture of a panel, or the reason why it is not shown."""
    axes.set_axis_off()
    axes.set_title(escape_control_chars(panel.title))
    image = decode_jpeg(panel.picture)
    if image is None:
        axes.text(0.5, 0.5, textwrap.fill(REFUSED, _MAX_LABEL), transform=axes.transAxes, ha="center", va="center")
        return
    axes.imshow(image, aspect="equal", interpolation="antialiased")
    axes.set_anchor("N")  # aligns the title with those of the other panels


def draw_series(axes: Axes, panel: Panel, styles: Mapping[SeriesKey, Style]) -> None:
    """Draw the series of a panel."""
    axes.set(
        xlabel=escape_control_chars(panel.x.label),
        ylabel=escape_control_chars(_break_label(panel.y.label)),
        title=escape_control_chars(panel.title),
    )
    _set_scales(axes, panel)

    dodges = _dodges(panel)
    for series in panel.series:
        style = styles[series.key]
        x = _positions(panel.x, series) + dodges.get(series.name, 0.0)
        if series.kind == "band":
            _fill(axes, x, series, style, alpha=0.18)
        elif series.kind == "cross":
            _draw_crosses(axes, x, series, style)
        elif series.kind == "bar":
            _draw_bars(axes, panel, series, style)
        else:
            axes.plot(x, _with_nan(series.y), **line_options(series, style))
            _draw_intervals(axes, x, series, style)

    if panel.x.from_zero and not panel.x.log:
        axes.set_xlim(0, AXIS_MARGIN * max(axes.dataLim.x1, 0) or 1)
    if panel.y.from_zero and not panel.y.log:
        axes.set_ylim(0, AXIS_MARGIN * max(axes.dataLim.y1, 0) or 1)


def series_colour(series: Series, style: Style) -> str:
    """The colour of a series on paper."""
    if style.colour is not None:
        return LIGHT.series[style.colour]
    return BLACK if series.kind == "cross" or style.ring else GREY


def bar_options(series: Series, style: Style) -> dict[str, Any]:
    """Keyword arguments of a matplotlib patch."""
    return {
        "facecolor": series_colour(series, style), "edgecolor": "white", "linewidth": 0.5,
        "hatch": _HATCHES[style.pattern], "alpha": 0.45 if style.hollow else 1.0,
    }  # fmt: skip


def line_options(series: Series, style: Style) -> dict[str, Any]:
    """Keyword arguments of a matplotlib line."""
    colour, mark = series_colour(series, style), _MARKS[style.mark]
    if series.dashed:
        return {"color": colour, "linestyle": (0, _DASHES[style.dash]), "linewidth": 1.4}
    if series.kind == "cross":
        return {"color": colour, "linestyle": "", "marker": "x",
                "markersize": 12 - style.depth, "markeredgewidth": 2.2}  # fmt: skip
    if style.ring:
        return {"linestyle": "", "marker": mark, "markersize": 13, "markeredgewidth": 1.3,
                "markerfacecolor": "none", "markeredgecolor": colour}  # fmt: skip

    joined = series.connected or series.kind == "line"
    return {
        "color": colour,
        "linestyle": "-" if joined else "",
        "linewidth": 1.0 if style.hollow else 2.4 - 0.16 * style.depth,
        "marker": mark,
        "markersize": (8 if joined else 9) - 0.35 * style.depth,
        "markerfacecolor": "white" if style.hollow else colour,
        "markeredgecolor": colour if style.hollow else "black",
        "markeredgewidth": 1.2 if style.hollow else 0.5,
        "markevery": max(len(series.x) // _MARKS_PER_LINE, 1) if series.kind == "line" else 1,
    }


def _break_label(text: str) -> str:
    """A label that is longer than its axis, with the unit on a second line."""
    return text if len(text) <= _MAX_LABEL else text.replace(" (", "\n(")


def _draw_intervals(axes: Axes, x: NDArray[np.float64], series: Series, style: Style) -> None:
    if not series.low or not series.high:
        return
    if series.connected and len(x) > _MAX_ERROR_BARS:
        _fill(axes, x, series, style, alpha=0.15)
        return

    y = _with_nan(series.y)
    # The centre of a series may lie outside its interval; matplotlib refuses negative lengths.
    ends = np.maximum([y - _with_nan(series.low), _with_nan(series.high) - y], 0)
    colour = series_colour(series, style)
    if series.kind == "bar":  # half of the interval lies within the bar
        colour = GREY if colour == BLACK else BLACK
    axes.errorbar(x, y, yerr=ends, fmt="none", ecolor=colour, elinewidth=1, capsize=2.5, alpha=0.8)


def _fill(axes: Axes, x: NDArray[np.float64], series: Series, style: Style, *, alpha: float) -> None:
    """Shade the area between the ends of the intervals."""
    colour = series_colour(series, style)
    axes.fill_between(x, _with_nan(series.low), _with_nan(series.high), color=colour, alpha=alpha, linewidth=0)


def _draw_bars(axes: Axes, panel: Panel, series: Series, style: Style) -> None:
    width, offsets = bar_offsets(panel)
    bases = np.array(bar_bases(panel)[series.key])
    x, y = _positions(panel.x, series) + offsets[series.key], _with_nan(series.y)
    drawn = np.isfinite(y) & (y > bases) if panel.y.log else np.isfinite(y)
    heights = y if panel.stacked else y - bases
    axes.bar(x[drawn], heights[drawn], width, bases[drawn], **bar_options(series, style))
    _draw_intervals(axes, x, series, style)


def _draw_crosses(axes: Axes, x: NDArray[np.float64], series: Series, style: Style) -> None:
    """Draw crosses at their height, or at the upper edge of the panel if they have none."""
    for position, height in zip(x, series.y, strict=True):
        transform = axes.transData if height is not None else axes.get_xaxis_transform()
        y = 0.97 if height is None else height
        axes.plot([position], [y], transform=transform, clip_on=False, **line_options(series, style))


def _positions(axis: Axis, series: Series) -> NDArray[np.float64]:
    places = {name: index for index, name in enumerate(axis.categories)}
    return np.array([places[str(value)] if places else value for value in series.x], dtype=float)


def _dodges(panel: Panel) -> dict[str, float]:
    """Distance of each series of points from its category, so that the series do not hide each other."""
    if not panel.x.categories:
        return {}
    names = list(dict.fromkeys(series.name for series in panel.series if series.kind == "points"))
    step = 0.7 / max(len(names), 2)
    return {name: (index - (len(names) - 1) / 2) * step for index, name in enumerate(names)}


def _set_scales(axes: Axes, panel: Panel) -> None:
    """Set scales and ticks: the measured values where they are few, and plain numbers instead of powers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    x = [] if panel.x.categories else [float(value) for series in panel.series for value in series.x]
    y = [value for series in panel.series for value in (*series.y, *series.low, *series.high)]
    for axis, ticks, set_scale, values in (
        (panel.x, axes.xaxis, axes.set_xscale, x), (panel.y, axes.yaxis, axes.set_yscale, y)
    ):  # fmt: skip
        if axis.log:
            set_scale("log")
            ticks.set_major_locator(LogLocator(subs=(1,) if _decades(values) > _MAX_DECADES else (1, 2, 5)))
            ticks.set_minor_locator(NullLocator())
        ticks.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))

    if panel.x.categories:
        _set_category_ticks(axes, panel.x.categories)
        return
    measured = [series for series in panel.series if series.kind in ("points", "bound", "cross")]
    measured_x = sorted({float(value) for series in measured for value in series.x})
    if measured_x and all(value.is_integer() for value in measured_x):
        if not panel.x.log:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        # A fitted curve may go beyond the measured values.
        elif len(measured_x) <= _MAX_TICKS and max(x) <= measured_x[-1]:
            axes.xaxis.set_major_locator(FixedLocator(measured_x))


def _decades(values: Iterable[float | None]) -> float:
    """The powers of ten that a logarithmic axis spans."""
    positive = [value for value in values if is_finite(value) and value > 0]
    return math.log10(max(positive)) - math.log10(min(positive)) if positive else 0.0


def _set_category_ticks(axes: Axes, categories: Sequence[str]) -> None:
    names = [escape_control_chars(name) for name in categories]
    ticks = range(0, len(names), math.ceil(len(names) / MAX_CATEGORIES))
    axes.set_xticks(list(ticks), [textwrap.fill(names[index], 18, break_long_words=False) for index in ticks])
    axes.set_xlim(-0.5, len(names) - 0.5)
    if sum(len(names[index]) for index in ticks) > 45:
        for text in axes.get_xticklabels():
            text.set(rotation=30, ha="right", rotation_mode="anchor")


def _with_nan(values: Sequence[float | None]) -> NDArray[np.float64]:
    """The values with NaN, which matplotlib leaves out, in place of None."""
    return np.array(values, dtype=float)
