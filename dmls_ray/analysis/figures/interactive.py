"""A chart as plotly draws it: traces and a layout as plain values, ready for JSON. plotly itself is not imported.

The page (`report/figures.js`) shows title and notes as text, arranges the panels, and adds the colours of its theme.
For that the `meta` of a trace has `colour`, the index in the colours of a theme. It also has `runs`, the runs behind
each point (or `all_runs` if all points have the same).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dmls_ray.analysis.figures.bars import bar_axis_end, bar_base, bar_bases, bar_offsets, bar_series
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series, is_finite
from dmls_ray.analysis.figures.jpeg import REFUSED, decode_jpeg
from dmls_ray.analysis.figures.plotly_text import plain, rounded
from dmls_ray.analysis.figures.style import Style, assign_styles

_HEIGHT = 400
"""Height of a row of panels in pixels."""

_MAX_LEGEND = 20
"""Series up to which there is a legend; with more, colours repeat, and each series is named on hover."""

_MAX_TICKS = 9
"""Measured values of x that have a tick each."""
_MAX_LINE = 36
"""Characters of one line of a label."""


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """`{"data": [...], "layout": {...}}`, without colours."""
    styles = assign_styles(chart)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "height": _HEIGHT,
        "margin": {"l": 68, "r": 16, "t": 30 if any(panel.title for panel in chart.panels) else 12, "b": 56},
        "font": {"family": 'system-ui, -apple-system, "Segoe UI", sans-serif', "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "separators": ".,",
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yanchor": "bottom", "yref": "container"},
        "annotations": [],
    }
    all_names = [name for name, _ in styles]
    in_legend: set[str] = set()

    for number, panel in enumerate(chart.panels, start=1):
        layout |= (_hidden_axes if panel.picture else _panel_axes)(panel, number)
        if panel.title:
            above = {"x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "yshift": 4}
            layout["annotations"].append(_annotation(plain(panel.title), number, **above))
        if panel.picture:
            data.append(_picture(panel.picture, number))
            if data[-1]["type"] != "image":
                layout["annotations"].append(_annotation(_wrapped(REFUSED), number, x=0.5, y=0.5))
        if any(_is_on_edge(series) for series in panel.series):
            layout[f"yaxis{len(chart.panels) + number}"] = _overlay_axis(number)

        # Bands first, so that they lie under their series.
        for series in sorted(panel.series, key=lambda item: item.kind != "band"):
            if not series.x:
                continue
            trace = _trace(series, panel, number, len(chart.panels), styles[series.key])
            is_new = series.name not in in_legend and not (series.kind == "band" and series.same_as)
            if is_new:
                in_legend.add(series.name)
                if all_names.count(series.name) > 1:
                    data.append(_shared_legend_entry(trace))
                    is_new = False
            data.append(trace | {"showlegend": is_new})

    for first, *others in chart.shared_scales:
        for place in others:
            layout[f"yaxis{place + 1}"]["matches"] = _axis_name("y", first + 1)
    layout["showlegend"] = 1 < len(in_legend) <= _MAX_LEGEND
    return {"data": data, "layout": layout}


def _trace(series: Series, panel: Panel, number: int, panels: int, style: Style) -> dict[str, Any]:
    on_edge = _is_on_edge(series)
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": plain(series.name),
        "legendgroup": plain(series.name),
        "xaxis": _axis_name("x", number),
        "yaxis": _axis_name("y", panels + number if on_edge else number),
        "meta": {"colour": style.colour},
    }
    if series.kind == "band":
        return trace | _band(series)

    is_text = bool(panel.x.categories)
    trace["x"] = [plain(str(x)) if is_text or isinstance(x, str) else rounded(x) for x in series.x]
    trace["y"] = [0.03] * len(series.x) if on_edge else [rounded(value) for value in series.y]
    _add_style(trace, series, panel, style)
    if series.kind in ("points", "bar") and series.low and series.high:
        trace["error_y"] = _interval(series)
    if len(series.runs) > 1 and len(set(series.runs)) == 1:
        trace["meta"]["all_runs"] = list(series.runs[0])
    elif series.runs:
        trace["meta"]["runs"] = [list(run_ids) for run_ids in series.runs]

    texts = [_hover_text(series, index) for index in range(len(series.x))]
    y_value = "customdata:,.5~r" if panel.stacked else "y"  # the y of a bar on others is where it ends
    y_line = "" if on_edge else f"<br>{plain(panel.y.label)}: %{{{y_value}}}"
    trace["hovertemplate"] = f"<b>{trace['name']}</b><br>{plain(panel.x.label)}: %{{x}}{y_line}"
    if any(texts):
        trace["text"] = texts
        trace["hovertemplate"] += "%{text}"
    trace["hovertemplate"] += "<extra></extra>"
    return trace


def _picture(picture: str, number: int) -> dict[str, Any]:
    """The trace of a picture; an empty trace, which keeps the panel, for a picture that is refused."""
    trace = {
        "xaxis": _axis_name("x", number), "yaxis": _axis_name("y", number), "hoverinfo": "skip", "showlegend": False,
        "meta": {"colour": None},
    }  # fmt: skip
    if decode_jpeg(picture) is None:
        return trace | {"type": "scatter", "x": [None], "y": [None]}
    return trace | {"type": "image", "source": f"data:image/jpeg;base64,{picture}", "zsmooth": "fast"}


def _shared_legend_entry(trace: Mapping[str, Any]) -> dict[str, Any]:
    """A legend entry without colour, for a name that several lines share: an ideal, for example."""
    kept = ("type", "name", "legendgroup", "xaxis", "yaxis", "mode", "marker", "line", "fill")
    entry = {name: trace[name] for name in kept if name in trace}
    return entry | {"x": [None], "y": [None], "hoverinfo": "skip", "meta": {"colour": None}, "showlegend": True}


def _add_style(trace: dict[str, Any], series: Series, panel: Panel, style: Style) -> None:
    if series.kind == "cross":
        trace["mode"] = "markers"
        trace["marker"] = {"symbol": "x-thin", "size": 10, "line": {"width": 2.5}}
    elif series.kind == "bar":
        width, offsets = bar_offsets(panel)
        trace["type"] = "bar"
        trace["width"] = rounded(width)
        trace["offset"] = [rounded(middle - width / 2) for middle in offsets[series.key]]
        if panel.stacked:
            trace["base"] = [rounded(base) for base in bar_bases(panel)[series.key]]
            trace["customdata"] = trace["y"]
        trace["textposition"] = "none"  # the text is for hovering only
        trace["marker"] = {}
        if style.pattern:
            trace["marker"]["pattern"] = {"shape": style.pattern, "fillmode": "overlay"}
        if style.hollow:
            trace["opacity"] = 0.45
    elif series.kind == "line":
        # A curve has no marks, so a second one of the same colour needs dots to differ.
        dash = "dot" if style.hollow and style.dash == "solid" else style.dash
        trace["mode"] = "lines"
        trace["line"] = {"width": 1.8, "dash": dash}
    else:
        joined = series.connected and not panel.x.categories
        mark = style.mark + ("-open" if style.hollow else "")
        trace["mode"] = "lines+markers" if joined else "markers"
        trace["marker"] = {"symbol": mark, "size": 15 if style.ring else 8}
        if style.hollow:
            trace["marker"]["line"] = {"width": 1.8}
        if style.hollow and style.colour is None and not style.ring:
            trace["opacity"] = 0.55
        if joined:
            trace["line"] = {"width": 1.8, "dash": style.dash}


def _band(series: Series) -> dict[str, Any]:
    """A polygon for each stretch of points with both ends."""
    x: list[Any] = []
    y: list[Any] = []
    for stretch in _stretches(series):
        at = [rounded(value) for value, _, _ in stretch]
        x += [*at, *reversed(at), None]
        y += [rounded(high) for _, _, high in stretch] + [rounded(low) for _, low, _ in reversed(stretch)] + [None]
    return {"x": x, "y": y, "mode": "lines", "fill": "toself", "line": {"width": 0}, "hoverinfo": "skip"}


def _stretches(series: Series) -> list[list[tuple[Any, Any, Any]]]:
    stretches: list[list[tuple[Any, Any, Any]]] = [[]]
    for item in zip(series.x, series.low, series.high, strict=True):
        if is_finite(item[1]) and is_finite(item[2]):
            stretches[-1].append(item)
        elif stretches[-1]:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]


def _interval(series: Series) -> dict[str, Any]:
    ends = list(zip(series.y, series.low, series.high, strict=True))
    return {
        "type": "data", "symmetric": False, "thickness": 1.4, "width": 4,
        "array": [rounded(high - y) if is_finite(y) and is_finite(high) else 0 for y, _, high in ends],
        "arrayminus": [rounded(y - low) if is_finite(y) and is_finite(low) else 0 for y, low, _ in ends],
    }  # fmt: skip


def _hover_text(series: Series, index: int) -> str:
    """The text of a point on hover, after its coordinates."""
    text = ""
    if series.low and series.high and is_finite(series.low[index]) and is_finite(series.high[index]):
        text += f" [{series.low[index]:,.5g}, {series.high[index]:,.5g}]"
    if series.texts and series.texts[index]:
        text += f"<br>{plain(series.texts[index])}"
    if series.runs and series.runs[index]:
        count = len(series.runs[index])
        text += f"<br><i>click: {count} runs</i>" if count > 1 else "<br><i>click: its run</i>"
    return text


def _axis_name(letter: str, number: int) -> str:
    """plotly's name of an axis: x, x2, x3, ..."""
    return letter if number == 1 else f"{letter}{number}"


def _panel_axes(panel: Panel, number: int) -> dict[str, Any]:
    """The two axes of a panel."""
    series = [item for item in panel.series if item.kind != "band"]
    x = _axis(panel.x, [value for item in series for value in item.x])
    y = _axis(panel.y, [value for item in series for value in item.y if value is not None])
    if panel.y.log and bar_series(panel):
        y["range"] = [rounded(math.log10(end)) for end in (bar_base(panel), bar_axis_end(panel))]
    if not panel.x.categories:
        x |= _ticks(panel.x, {value for item in series for value in item.x})
    return _named(x, y, number)


def _hidden_axes(panel: Panel, number: int) -> dict[str, Any]:
    """The hidden axes that position a picture; it keeps its aspect ratio, at the upper left of the panel."""
    hidden = {"visible": False, "fixedrange": True, "constrain": "domain"}
    upright = {"constraintoward": "top", "scaleanchor": _axis_name("x", number), "autorange": "reversed"}
    return _named(hidden | {"constraintoward": "left"}, hidden | upright, number)


def _overlay_axis(number: int) -> dict[str, Any]:
    """A hidden y axis over that of a panel, for the runs without a value along the lower edge."""
    return {
        "overlaying": _axis_name("y", number), "anchor": _axis_name("x", number), "range": [0, 1],
        "visible": False, "fixedrange": True,
    }  # fmt: skip


def _is_on_edge(series: Series) -> bool:
    """Whether a series is drawn along the lower edge: crosses without a height."""
    return series.kind == "cross" and not any(is_finite(value) for value in series.y)


def _annotation(text: str, number: int, **position: Any) -> dict[str, Any]:
    """An _annotation of a panel, at a position in fractions of its width and height."""
    domains = {f"{letter}ref": f"{_axis_name(letter, number)} domain" for letter in "xy"}
    return {"text": text, "showarrow": False, **domains, **position}


def _named(x: dict[str, Any], y: dict[str, Any], number: int) -> dict[str, Any]:
    suffix = "" if number == 1 else str(number)
    x, y = x | {"anchor": _axis_name("y", number)}, y | {"anchor": _axis_name("x", number)}
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def _axis(axis: Axis, values: Sequence[float | str]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "title": {"text": _wrapped(axis.label), "standoff": 8, "font": {"size": 13}},
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


def _wrapped(label: str) -> str:
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
