"""A chart as plotly draws it: traces and a layout as plain values, ready for JSON. plotly itself is not imported.

The page (`report/figures.js`) shows title and notes as text, arranges the panels, and adds the colours of its theme.
For that the `meta` of a trace has `colour`, the index in the colours of a theme. It also has `runs`, the runs behind
each point (or `all_runs` if all points have the same).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.analysis.figures.bars import bar_offsets
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series, is_finite
from dmls_ray.analysis.figures.interactive_axes import (
    annotation,
    axis_name,
    hidden_axes,
    is_on_edge,
    overlay_axis,
    panel_axes,
    wrapped,
)
from dmls_ray.analysis.figures.jpeg import REFUSED, decode_jpeg
from dmls_ray.analysis.figures.plotly_text import plain, rounded
from dmls_ray.analysis.figures.style import Style, assign_styles

_HEIGHT = 400
"""Height of a row of panels in pixels."""

_MAX_LEGEND = 20
"""Series up to which there is a legend; with more, colours repeat, and each series is named on hover."""


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
        layout |= (hidden_axes if panel.picture else panel_axes)(panel, number)
        if panel.title:
            above = {"x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "yshift": 4}
            layout["annotations"].append(annotation(plain(panel.title), number, **above))
        if panel.picture:
            data.append(_picture(panel.picture, number))
            if data[-1]["type"] != "image":
                layout["annotations"].append(annotation(wrapped(REFUSED), number, x=0.5, y=0.5))
        if any(is_on_edge(series) for series in panel.series):
            layout[f"yaxis{len(chart.panels) + number}"] = overlay_axis(number)

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

    layout["showlegend"] = 1 < len(in_legend) <= _MAX_LEGEND
    return {"data": data, "layout": layout}


def _trace(series: Series, panel: Panel, number: int, panels: int, style: Style) -> dict[str, Any]:
    on_edge = is_on_edge(series)
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": plain(series.name),
        "legendgroup": plain(series.name),
        "xaxis": axis_name("x", number),
        "yaxis": axis_name("y", panels + number if on_edge else number),
        "meta": {"colour": style.colour},
    }
    if series.kind == "band":
        return trace | _band(series)

    trace["x"] = _values(series.x, panel.x)
    trace["y"] = [0.03] * len(series.x) if on_edge else [rounded(value) for value in series.y]
    _add_style(trace, series, panel, style)
    if series.kind in ("points", "bar") and series.low and series.high:
        trace["error_y"] = _interval(series)
    _add_runs(trace["meta"], series.runs)

    texts = [_hover_text(series, index) for index in range(len(series.x))]
    y_line = "" if on_edge else f"<br>{plain(panel.y.label)}: %{{y}}"
    trace["hovertemplate"] = f"<b>{trace['name']}</b><br>{plain(panel.x.label)}: %{{x}}{y_line}"
    if any(texts):
        trace["text"] = texts
        trace["hovertemplate"] += "%{text}"
    trace["hovertemplate"] += "<extra></extra>"
    return trace


def _picture(picture: str, number: int) -> dict[str, Any]:
    """The trace of a picture; an empty trace, which keeps the panel, for a picture that is refused."""
    trace = {
        "xaxis": axis_name("x", number), "yaxis": axis_name("y", number), "hoverinfo": "skip", "showlegend": False,
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


def _add_runs(meta: dict[str, Any], runs: Sequence[tuple[str, ...]]) -> None:
    if len(runs) > 1 and all(item == runs[0] for item in runs):
        meta["all_runs"] = list(runs[0])
    elif runs:
        meta["runs"] = [list(item) for item in runs]


def _values(values: Sequence[float | str], axis: Axis) -> list[Any]:
    if axis.categories:
        return [plain(str(value)) for value in values]
    return [plain(value) if isinstance(value, str) else rounded(value) for value in values]
