"""A chart as plotly draws it: traces and a layout as plain values, ready for JSON. plotly itself is not imported.

Title and notes are not part of it; the page shows them as text. The `meta` of a trace has what the page needs besides:
`colour`, the index in the colours of a theme, and `runs`, the runs behind each point (or `all_runs` if all points have
the same).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.analysis.figures.bars import bar_offsets
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series, is_finite
from dmls_ray.analysis.figures.interactive_axes import (
    axis_name,
    hidden_axes,
    is_on_edge,
    overlay_axis,
    panel_axes,
    panel_heading,
    panel_message,
)
from dmls_ray.analysis.figures.jpeg import REFUSED, decode_jpeg
from dmls_ray.analysis.figures.plotly_text import plain, rounded
from dmls_ray.analysis.figures.style import LIGHT, Style, assign_styles, series_key

_HEIGHT = 400
"""Height of a row of panels in pixels."""

_MAX_LEGEND = 20
"""Series up to which there is a legend; with more, colours repeat, and each series is named on hover."""


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """`{"data": [...], "layout": {...}}`, in colours for a light background."""
    styles = assign_styles(chart)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "height": _HEIGHT,
        "margin": {"l": 68, "r": 16, "t": 30 if any(panel.title for panel in chart.panels) else 12, "b": 56},
        "font": {"family": 'system-ui, -apple-system, "Segoe UI", sans-serif', "size": 13, "color": LIGHT.ink},
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
        layout |= (hidden_axes if panel.picture else panel_axes)(panel, number, len(chart.panels))
        if panel.title:
            layout["annotations"].append(panel_heading(panel.title, number))
        if panel.picture:
            data.append(_picture(panel.picture, number))
            if data[-1]["type"] != "image":
                layout["annotations"].append(panel_message(REFUSED, number))
        if any(is_on_edge(series) for series in panel.series):
            layout[f"yaxis{len(chart.panels) + number}"] = overlay_axis(number)

        # Bands first, so that they lie under their series.
        for series in sorted(panel.series, key=lambda item: item.kind != "band"):
            if not series.x:
                continue
            trace = _trace(series, panel, number, len(chart.panels), styles[series_key(series)])
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
        return trace | _band(series, _colour(style))

    trace["x"] = _values(series.x, panel.x)
    trace["y"] = [0.03] * len(series.x) if on_edge else [rounded(value) for value in series.y]
    _add_style(trace, series, panel, style)
    if series.kind in ("points", "bar") and series.low and series.high:
        trace["error_y"] = _interval(series, _colour(style))
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
    kept = ("type", "name", "legendgroup", "xaxis", "yaxis", "mode", "marker", "line", "fill", "fillcolor")
    entry = {name: dict(value) if isinstance(value := trace[name], dict) else value for name in kept if name in trace}
    for part in (entry.get("marker", {}), entry.get("line", {})):
        if "color" in part:
            part["color"] = LIGHT.muted
    return entry | {"x": [None], "y": [None], "hoverinfo": "skip", "meta": {"colour": None}, "showlegend": True}


def _colour(style: Style) -> str:
    return LIGHT.muted if style.colour is None else LIGHT.series[style.colour]


def _add_style(trace: dict[str, Any], series: Series, panel: Panel, style: Style) -> None:
    colour = _colour(style)
    if series.kind == "cross":
        trace["mode"] = "markers"
        trace["marker"] = {"symbol": "x-thin", "size": 10, "color": colour, "line": {"width": 2.5, "color": colour}}
    elif series.kind == "bar":
        width, offsets = bar_offsets(panel)
        trace["type"] = "bar"
        trace["width"] = rounded(width)
        trace["offset"] = [rounded(middle - width / 2) for middle in offsets[series_key(series)]]
        trace["textposition"] = "none"  # the text is for hovering only
        trace["marker"] = {"color": colour}
        if style.pattern:
            trace["marker"]["pattern"] = {"shape": style.pattern, "fillmode": "overlay"}
        if style.hollow or series.dashed:
            trace["opacity"] = 0.45
    elif series.kind == "line":
        # A curve has no marks, so a second one of the same colour needs dots to differ.
        dash = "dot" if style.hollow and style.dash == "solid" else style.dash
        trace["mode"] = "lines"
        trace["line"] = {"color": colour, "width": 1.8, "dash": dash}
    else:
        joined = series.connected and not panel.x.categories
        mark = style.mark + ("-open" if style.hollow else "")
        trace["mode"] = "lines+markers" if joined else "markers"
        trace["marker"] = {"symbol": mark, "size": 15 if style.ring else 8, "color": colour}
        if style.hollow:
            trace["marker"]["line"] = {"width": 1.8, "color": colour}
        if style.hollow and style.colour is None and not style.ring:
            trace["opacity"] = 0.55
        if joined:
            trace["line"] = {"color": colour, "width": 1.8, "dash": style.dash}


def _band(series: Series, colour: str) -> dict[str, Any]:
    """A polygon for each stretch of points with both ends."""
    x: list[Any] = []
    y: list[Any] = []
    for stretch in _stretches(series):
        at = [rounded(value) if isinstance(value, float) else value for value, _, _ in stretch]
        x += [*at, *reversed(at), None]
        y += [rounded(high) for _, _, high in stretch] + [rounded(low) for _, low, _ in reversed(stretch)] + [None]
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return {
        "x": x, "y": y, "mode": "lines", "fill": "toself", "fillcolor": f"rgba({red},{green},{blue},0.18)",
        "line": {"width": 0, "color": colour}, "hoverinfo": "skip",
    }  # fmt: skip


def _stretches(series: Series) -> list[list[tuple[Any, Any, Any]]]:
    stretches: list[list[tuple[Any, Any, Any]]] = [[]]
    for item in zip(series.x, series.low, series.high, strict=True):
        if is_finite(item[1]) and is_finite(item[2]):
            stretches[-1].append(item)
        elif stretches[-1]:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]


def _interval(series: Series, colour: str) -> dict[str, Any]:
    ends = list(zip(series.y, series.low, series.high, strict=True))
    return {
        "type": "data", "symmetric": False, "color": colour, "thickness": 1.4, "width": 4,
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
