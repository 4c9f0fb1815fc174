"""A chart as plotly draws it: traces and a layout as plain values, ready for JSON. plotly itself is not imported.

Title and notes stand outside, where they are text. Each trace's `meta` says what a page needs beyond drawing: `colour`,
the place in the colours of a theme, and `runs`, the runs behind each point (or `all_runs`, where they are the same).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dmls_ray.analysis.figures.bars import bar_axis_end, bar_base, bar_offsets, bar_series
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series, is_finite
from dmls_ray.analysis.figures.jpeg import REFUSED, decode_jpeg
from dmls_ray.analysis.figures.style import LIGHT, Style, assign_styles, series_key

HEIGHT = 400
"""Pixels, of a row of panels."""

_FEW_TICKS = 9
"""So many different values of x have a tick each: those that were measured."""
_MOST_NAMED = 20
"""Of more series no legend tells anything: colours come back, and hovering names each."""
_LONGEST_LINE = 36
"""Characters."""
_GAP = 0.1
"""Between two panels, as a share of the width."""


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """`{"data": [...], "layout": {...}}`, in colours for a light background."""
    style = assign_styles(chart)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "height": HEIGHT,
        "margin": {"l": 68, "r": 16, "t": 30 if any(panel.title for panel in chart.panels) else 12, "b": 56},
        "font": {"family": 'system-ui, -apple-system, "Segoe UI", sans-serif', "size": 13, "color": LIGHT.ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "separators": ".,",
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yanchor": "bottom", "yref": "container"},
        "annotations": [],
    }
    of_many = {name for name, _ in style if sum(name == other for other, _ in style) > 1}
    named: set[str] = set()
    for number, panel in enumerate(chart.panels, start=1):
        layout |= (_no_axes if panel.picture else _axes)(panel, number, len(chart.panels))
        if panel.title:
            layout["annotations"].append(_heading(panel.title, number))
        if panel.picture:
            data.append(_image(panel.picture, number))
            if data[-1]["type"] != "image":
                layout["annotations"].append(_refusal(number))
        if any(_on_the_edge(series) for series in panel.series):
            layout[f"yaxis{len(chart.panels) + number}"] = _edge(number)
        # Bands lie under what they belong to.
        for series in sorted(panel.series, key=lambda series: series.kind != "band"):
            if series.x:
                first = series.name not in named and not (series.kind == "band" and series.same_as)
                trace = _trace(series, panel, number, len(chart.panels), style[series_key(series)])
                if first:
                    named.add(series.name)
                    if series.name in of_many:
                        data.append(_entry(trace))
                        first = False
                data.append(trace | {"showlegend": first})
    layout["showlegend"] = 1 < len(named) <= _MOST_NAMED
    return {"data": data, "layout": layout}


def plain(text: str) -> str:
    """Text that plotly shows as it is: it would read tags, links and templates in any label."""
    for mark, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("{", "&#123;"), ("$", "&#36;")):
        text = text.replace(mark, entity)
    return text


def rounded(value: Any, digits: int = 5) -> Any:
    """A number to so many digits; whole numbers and what is no number stay, and what is not finite becomes None."""
    if type(value) is not float:
        return value
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.{digits}g}")


def _trace(series: Series, panel: Panel, number: int, panels: int, style: Style) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": plain(series.name),
        "legendgroup": plain(series.name),
        "xaxis": _axis_name("x", number),
        "yaxis": _axis_name("y", panels + number if _on_the_edge(series) else number),
        "meta": {"colour": style.colour},
    }
    if series.kind == "band":
        return trace | _band(series, _colour(style))
    trace["x"] = _values(series.x, panel.x)
    trace["y"] = [0.03] * len(series.x) if _on_the_edge(series) else [rounded(value) for value in series.y]
    _add_look(trace, series, panel, style)
    if series.kind in ("points", "bar") and series.low and series.high:
        trace["error_y"] = _interval(series, _colour(style))
    _add_runs(trace["meta"], series.runs)
    texts = [_said(series, place) for place in range(len(series.x))]
    level = "" if _on_the_edge(series) else f"<br>{plain(panel.y.label)}: %{{y}}"
    trace["hovertemplate"] = f"<b>{trace['name']}</b><br>{plain(panel.x.label)}: %{{x}}{level}"
    if any(texts):
        trace["text"] = texts
        trace["hovertemplate"] += "%{text}"
    trace["hovertemplate"] += "<extra></extra>"
    return trace


def _image(picture: str, number: int) -> dict[str, Any]:
    """A picture; nothing, which keeps its place, where it is none."""
    trace = {
        "xaxis": _axis_name("x", number), "yaxis": _axis_name("y", number), "hoverinfo": "skip", "showlegend": False,
        "meta": {"colour": None},
    }  # fmt: skip
    if decode_jpeg(picture) is None:
        return trace | {"type": "scatter", "x": [None], "y": [None]}
    return trace | {"type": "image", "source": f"data:image/jpeg;base64,{picture}", "zsmooth": "fast"}


def _entry(trace: Mapping[str, Any]) -> dict[str, Any]:
    """The legend's entry of what several lines have of one name, an ideal say: without the colour of any."""
    kept = ("type", "name", "legendgroup", "xaxis", "yaxis", "mode", "marker", "line", "fill", "fillcolor")
    entry = {name: dict(value) if isinstance(value := trace[name], dict) else value for name in kept if name in trace}
    for look in (entry.get("marker", {}), entry.get("line", {})):
        if "color" in look:
            look["color"] = LIGHT.muted
    return entry | {"x": [None], "y": [None], "hoverinfo": "skip", "meta": {"colour": None}, "showlegend": True}


def _colour(style: Style) -> str:
    return LIGHT.muted if style.colour is None else LIGHT.series[style.colour]


def _add_look(trace: dict[str, Any], series: Series, panel: Panel, style: Style) -> None:
    colour = _colour(style)
    if series.kind == "cross":
        trace["mode"] = "markers"
        trace["marker"] = {"symbol": "x-thin", "size": 10, "color": colour, "line": {"width": 2.5, "color": colour}}
    elif series.kind == "bar":
        width, middles = bar_offsets(panel)
        trace["type"] = "bar"
        trace["width"] = rounded(width)
        trace["offset"] = [rounded(middle - width / 2) for middle in middles[series_key(series)]]
        trace["textposition"] = "none"  # what hovering says is not written on it
        trace["marker"] = {"color": colour}
        if style.pattern:
            trace["marker"]["pattern"] = {"shape": style.pattern, "fillmode": "overlay"}
        if style.hollow or series.dashed:
            trace["opacity"] = 0.45
    elif series.kind == "line":
        # Without marks, a curve that has another's colour needs something else to be told from it.
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
    """A polygon for each stretch in which both ends are known."""
    x: list[Any] = []
    y: list[Any] = []
    for stretch in _stretches(series):
        at = [rounded(value) if isinstance(value, float) else value for value, _, _ in stretch]
        x += [*at, *reversed(at), None]
        y += [rounded(high) for _, _, high in stretch] + [rounded(low) for _, low, _ in reversed(stretch)] + [None]
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
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


def _said(series: Series, place: int) -> str:
    """What hovering over a point says beyond its place."""
    told = ""
    if series.low and series.high and is_finite(series.low[place]) and is_finite(series.high[place]):
        told += f" [{series.low[place]:,.5g}, {series.high[place]:,.5g}]"
    if series.texts and series.texts[place]:
        told += f"<br>{plain(series.texts[place])}"
    if series.runs and series.runs[place]:
        count = len(series.runs[place])
        told += f"<br><i>click: {count} runs</i>" if count > 1 else "<br><i>click: its run</i>"
    return told


def _add_runs(meta: dict[str, Any], runs: Sequence[tuple[str, ...]]) -> None:
    if len(runs) > 1 and all(item == runs[0] for item in runs):
        meta["all_runs"] = list(runs[0])
    elif runs:
        meta["runs"] = [list(item) for item in runs]


def _no_axes(panel: Panel, number: int, panels: int) -> dict[str, Any]:
    """Hidden ones, which give the picture its place; within it, it keeps its form, at the upper left."""
    hidden = {"visible": False, "fixedrange": True, "constrain": "domain"}
    x = hidden | {"anchor": _axis_name("y", number), "domain": _domain(number, panels), "constraintoward": "left"}
    y = hidden | {"anchor": _axis_name("x", number), "domain": [0, 1], "constraintoward": "top"}
    y |= {"scaleanchor": _axis_name("x", number), "autorange": "reversed"}
    suffix = "" if number == 1 else str(number)
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def _domain(number: int, panels: int) -> list[float]:
    """Where a panel begins and ends, as shares of the width."""
    width = (1 - _GAP * (panels - 1)) / panels
    start = (number - 1) * (width + _GAP)
    return [round(start, 4), round(min(start + width, 1.0), 4)]


def _axes(panel: Panel, number: int, panels: int) -> dict[str, Any]:
    measured = [item for item in panel.series if item.kind != "band"]
    x = _axis(panel.x, [value for item in measured for value in item.x])
    y = _axis(panel.y, [value for item in measured for value in item.y if value is not None])
    x |= {"anchor": _axis_name("y", number), "domain": _domain(number, panels)}
    y |= {"anchor": _axis_name("x", number), "domain": [0, 1]}
    if panel.y.log and bar_series(panel):
        y["range"] = [rounded(math.log10(end)) for end in (bar_base(panel), bar_axis_end(panel))]
    if not panel.x.categories:
        x |= _ticks(panel.x, {value for item in measured for value in item.x})
    suffix = "" if number == 1 else str(number)
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def _axis(axis: Axis, values: Sequence[float | str]) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "title": {"text": _wrapped(axis.label), "standoff": 8, "font": {"size": 13}},
        "automargin": True,
        "gridcolor": LIGHT.grid,
        "linecolor": LIGHT.muted,
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": LIGHT.muted,
        "hoverformat": ",.5~r",
    }
    if axis.categories:
        # A row of names keeps its whole width, whichever of them have points.
        names = [plain(str(name)) for name in axis.categories]
        ends = {"range": [-0.5, len(names) - 0.5], "showgrid": False}
        return drawn | {"type": "category", "categoryorder": "array", "categoryarray": names} | ends
    known = [abs(value) for value in values if isinstance(value, int | float) and math.isfinite(value) and value]
    # Powers of ten only where digits would not do.
    digits = not known or (max(known) < 1e9 and min(known) >= 1e-4)
    drawn |= {"exponentformat": "none" if digits else "power", "separatethousands": True}
    if axis.log:
        return drawn | {"type": "log"}
    return drawn | {"type": "linear", "rangemode": "tozero" if axis.from_zero else "normal"}


def _wrapped(label: str) -> str:
    """In lines that are no longer than a panel is high."""
    return "<br>".join(plain(line) for line in textwrap.wrap(label, _LONGEST_LINE)) or plain(label)


def _ticks(axis: Axis, values: Iterable[float | str]) -> dict[str, Any]:
    """A tick at each value that was measured, where there are few and they do not lie on one another."""
    at = sorted(value for value in values if isinstance(value, int | float) and math.isfinite(value))
    # What was measured, and not set, has no round numbers.
    if not 1 <= len(at) <= _FEW_TICKS or not all(axis.log or float(value).is_integer() for value in at):
        return {}
    if axis.log and at[0] <= 0:
        return {}
    places = [math.log(value) for value in at] if axis.log else at
    whole = places[-1] - min(0.0 if axis.from_zero and not axis.log else places[0], places[0])
    if min((after - before for before, after in pairwise(places)), default=1.0) < 0.05 * whole:
        return {}
    return {"tickmode": "array", "tickvals": at, "ticktext": [f"{value:,.6g}" for value in at]}


def _edge(number: int) -> dict[str, Any]:
    """A hidden axis over a panel's own, along whose foot lie the runs that have no value."""
    return {
        "overlaying": _axis_name("y", number), "anchor": _axis_name("x", number), "range": [0, 1],
        "visible": False, "fixedrange": True,
    }  # fmt: skip


def _on_the_edge(series: Series) -> bool:
    return series.kind == "cross" and not any(is_finite(value) for value in series.y)


def _heading(title: str, number: int) -> dict[str, Any]:
    return {
        "text": plain(title), "showarrow": False, "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom",
        "xref": f"{_axis_name('x', number)} domain", "yref": f"{_axis_name('y', number)} domain", "yshift": 4,
    }  # fmt: skip


def _refusal(number: int) -> dict[str, Any]:
    """What stands in the place of a picture that is none."""
    return {
        "text": _wrapped(REFUSED), "showarrow": False, "x": 0.5, "y": 0.5,
        "xref": f"{_axis_name('x', number)} domain", "yref": f"{_axis_name('y', number)} domain",
    }  # fmt: skip


def _axis_name(letter: str, number: int) -> str:
    return letter if number == 1 else f"{letter}{number}"


def _values(values: Sequence[float | str], axis: Axis) -> list[Any]:
    if axis.categories:
        return [plain(str(value)) for value in values]
    return [plain(value) if isinstance(value, str) else rounded(value) for value in values]
