"""A chart as a Vega-Lite specification, the same for the report and for files.

Domains, and the ends of bars and intervals are computed here. Vega-Lite would extend a domain below 0, and does not
stack bars of different layers. Texts of users are values of data, titles and categories, which Vega-Lite takes
literally; no name of a field and no expression contains them.

One module because it is the only one that knows Vega-Lite.
"""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Chart, Panel, PlotAxis, PlotSeries, rounded
from dmls_ray.analysis.figures.series import SINGLE_LINE
from dmls_ray.analysis.figures.style import LIGHT, Style, Styles
from dmls_ray.util.text import escape_control_chars as escaped

WIDTH, HEIGHT = 330, 250
"""Size of the axes of a panel in pixels; the page sets another one."""

_FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif'
_MAX_COLUMNS = 3
_MOST_MARKS = 15
"""Joined points with a mark each; of more points every second, or third, has one."""
_ALL_TICKS = 3
"""Whole numbers that have a tick each, and no number between them."""
_MAX_LINE = 36
"""Characters of one line of a label."""
_ROOM = 0.05
"""Room between the values and the end of an axis, as a fraction of the axis."""
_DIGITS = 7
"""Digits of a number; the page shows fewer."""
_EDGE = 6
"""Pixels between the upper edge of a panel and a cross without a value."""
_SYMBOLS = {"line": "stroke", "band": "square", "bar": "square"}
"""Kind of a series -> its symbol in the legend, where it has no mark."""
_LEGEND_CHANNELS = ("shape", "stroke", "fill", "strokeDash")

Spec = dict[str, Any]
Domain = tuple[float, float]


def vega_lite(chart: Chart, styles: Styles, theme: Mapping[str, str]) -> Spec:
    """The specification, without title and notes.

    `usermeta` has the labels of the axes of each panel and the names of the legend, for the page.

    Args:
        chart: the chart.
        styles: the styles of all charts of a report.
        theme: `LIGHT`, `DARK` or `PAGE`.
    """
    domains = _y_domains(chart.panels)
    datasets: dict[str, list[Spec]] = {}
    axes, concat = [], []
    for number, panel in enumerate(chart.panels):
        view: Spec = {"width": WIDTH, "height": HEIGHT}
        if panel.title:
            view["title"] = {"text": escaped(panel.title), "fontSize": 12}
        if panel.picture:
            view |= _picture(panel.picture)
        else:
            data = _rows(panel, number, domains[panel.y.label][0])
            datasets |= data
            view |= _plot(panel, data, domains[panel.y.label], styles, theme)
        axes.append([escaped(panel.x.label), escaped(panel.y.label)])
        concat.append(view)

    legend = _legend(chart, styles, theme)
    if set(legend) - {SINGLE_LINE}:
        first = next(view for view in concat if "layer" in view)
        first["layer"].append(_legend_layer(legend))
    columns = math.ceil(len(concat) / math.ceil(len(concat) / _MAX_COLUMNS))
    config = _config(theme)
    longest = max(legend, key=len, default="")
    config["legend"]["columns"] = max(1, columns * (WIDTH + 70) // (45 + 7 * len(longest)))
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": theme["paper"],
        "config": config,
        "usermeta": {"axes": axes, "names": list(legend)},
        "datasets": datasets,
        "concat": concat,
        "columns": columns,
        "resolve": {"scale": dict.fromkeys(_LEGEND_CHANNELS, "shared")},
    }


def with_texts(chart: Chart, spec: Spec) -> Spec:
    """The specification of a file, with title and notes."""
    whole = {name: spec.pop(name) for name in ("$schema", "background", "config", "datasets")}
    notes = []
    for note in chart.notes:
        notes += textwrap.wrap(escaped(note), spec["columns"] * 58)
    if notes:
        look = {"orient": "bottom", "fontSize": 11, "fontWeight": "normal", "color": LIGHT["muted"]}
        spec["title"] = {"text": notes, **look}
    title = {"text": escaped(chart.title), "fontSize": 14}
    return {**whole, "padding": 12, "title": title, "vconcat": [spec]}


def _y_domains(panels: Sequence[Panel]) -> dict[str, Domain]:
    """Label of a y axis -> its ends."""
    values: dict[str, list[float | None]] = defaultdict(list)
    for panel in panels:
        shown = values[panel.y.label]
        heights: dict[float | str, float] = defaultdict(float)
        for series in panel.series:
            for point in series.points:
                shown += [point.y, point.low, point.high]
                heights[point.x] += _number(point.y) or 0.0
        if panel.stacked:
            shown += heights.values()
    domains = {}
    for panel in panels:
        has_bars = any(series.kind == "bar" for series in panel.series)
        domains[panel.y.label] = _domain(panel.y, values[panel.y.label], has_bars=has_bars)
    return domains


def _domain(axis: PlotAxis, values: Iterable[float | str | None], *, has_bars: bool = False) -> Domain:
    """The ends of an axis with room around the values."""
    shown = [number for value in values if (number := _number(value, axis)) is not None] or [1.0]
    low, high = min(shown), max(shown)
    if axis.log:
        room = max((high / low) ** _ROOM, 1 + _ROOM)
        if has_bars:
            return (10.0 ** (math.ceil(math.log10(low)) - 1), high * room)
        return (low / room, high * room)
    if axis.from_zero:
        low = min(0.0, low)
    room = _ROOM * (high - low) or abs(high) or 1.0
    if axis.from_zero and low == 0.0:
        return (low, high + room)
    return (low - room, high + room)


def _rows(panel: Panel, number: int, bottom: float) -> dict[str, list[Spec]]:
    """For each series a data set with a row for each point, which the page reads, too.

    Args:
        panel: the panel.
        number: its place in the chart.
        bottom: where bars begin, and intervals end that go further down than the axis.
    """
    data: dict[str, list[Spec]] = {}
    tops: dict[Any, float] = {}
    for series in panel.series:
        rows = data[f"panel{number}_series{len(data)}"] = []
        for point in series.points:
            x: Any = _number(point.x, panel.x)
            if panel.x.categories:
                x = escaped(str(point.x))
            y, low, high = (_number(value, panel.y) for value in (point.y, point.low, point.high))
            if point.low is not None and low is None:
                low = bottom
            row = {
                "panel": number, "series": escaped(series.name), "line": escaped(series.same_as or series.name),
                "x": x, "y": y, "low": low, "high": high, "text": escaped(point.text), "runs": point.runs,
            }  # fmt: skip
            if series.kind == "bar" and y is not None:
                row["foot"], row["top"] = bottom, y
                if panel.stacked:
                    row["foot"] = tops.get(x, 0.0)
                    row["top"] = tops[x] = row["foot"] + y
            rows.append(row)
    return data


def _plot(panel: Panel, datasets: Iterable[str], y_domain: Domain, styles: Styles, theme: Mapping[str, str]) -> Spec:
    """The axes of a panel and the marks of its series, whose data sets have these names."""
    places = [point.x for series in panel.series for point in series.points]
    x = _channel("x", panel.x, _domain(panel.x, places))
    if not panel.x.categories and all(float(place).is_integer() for place in places):
        x["axis"]["tickMinStep"] = 1
        if len({*places}) <= _ALL_TICKS:
            # Vega has ticks at fractions in spite of the minimum step.
            x["axis"]["values"] = sorted({*places})
    y = _channel("y", panel.y, y_domain)
    side_by_side = _side_by_side(panel)
    layers = []
    for name, series in zip(datasets, panel.series, strict=True):
        for mark, encoding in _marks(series, styles.of(series, panel), theme):
            if mark["type"] in ("bar", "errorbar", "point"):
                encoding |= side_by_side
            layer: Spec = {"data": {"name": name}, "mark": mark, "encoding": encoding}
            every = math.ceil(len(series.points) / _MOST_MARKS)
            if mark["type"] == "point" and series.is_joined and every > 1:
                number = {"window": [{"op": "row_number", "as": "number"}]}
                layer["transform"] = [number, {"filter": f"datum.number % {every} == 1"}]
            layers.append(layer)
    return {"encoding": {"x": x, "y": y}, "layer": layers}


def _side_by_side(panel: Panel) -> Spec:
    """The place of marks within their category, so that series do not hide each other."""
    if not panel.x.categories or panel.stacked:
        return {}
    names: list[str] = []
    for series in panel.series:
        name = escaped(series.same_as or series.name)
        if series.kind in ("points", "bar", "cross") and name not in names:
            names.append(name)
    if len(names) < 2:
        return {}
    return {"xOffset": {"field": "line", "type": "nominal", "scale": {"domain": names}}}


def _marks(series: PlotSeries, style: Style, theme: Mapping[str, str]) -> list[tuple[Spec, Spec]]:
    """The marks of a series from the lowest to the highest, each with its encoding."""
    colour, paper = theme[style.colour], theme["paper"]
    marks: list[tuple[Spec, Spec]] = []
    if series.kind == "bar":
        bar = {"type": "bar", "color": colour, "stroke": paper, "strokeWidth": 0.7, "cursor": "pointer"}
        marks.append((bar, _ends("foot", "top")))
    if series.intervals != "none":
        if series.intervals == "band":
            mark = {"type": "area", "opacity": 0.16, "color": colour, "interpolate": "linear"}
        else:
            mark = {"type": "errorbar", "color": colour, "thickness": 1.3, "ticks": {"size": 6}}
        if series.kind == "bar":
            # Half of the interval lies within the bar.
            mark["color"] = theme["ink"]
        marks.append((mark, _ends("low", "high")))
    if series.is_joined:
        line = {"type": "line", "strokeWidth": 1.8, "color": colour, "strokeDash": style.dash}
        marks.append((line, {"order": {"value": None}}))
    if series.kind in ("points", "ring", "cross"):
        point: Spec = {
            "type": "point", "shape": style.mark, "size": style.size, "opacity": 1, "fill": colour, "stroke": colour,
            "strokeWidth": 0.5, "cursor": "pointer",
        }  # fmt: skip
        if style.hollow:
            point |= {"fill": paper, "strokeWidth": 1.5}
        if series.kind == "ring":
            point["fill"] = "transparent"
        encoding: Spec = {}
        if series.kind == "cross":
            encoding["y"] = {"value": _EDGE}
        marks.append((point, encoding))
    return marks


def _ends(low: str, high: str) -> Spec:
    return {"y": {"field": low, "type": "quantitative"}, "y2": {"field": high}}


def _channel(field: str, axis: PlotAxis, domain: Domain) -> Spec:
    """Scale and axis of one direction."""
    shown: Spec = {"title": textwrap.wrap(escaped(axis.label), _MAX_LINE) or None}
    if axis.categories:
        names = [escaped(name) for name in axis.categories]
        shown |= {"labelAngle": 0, "labelLimit": 0, "labelOverlap": len(names) > MAX_CATEGORIES, "grid": False}
        if 7 * len(names) * (len(max(names, key=len)) + 1) > WIDTH:
            shown["labelAngle"] = -30
        scale: Spec = {"type": "band", "domain": names, "paddingInner": 0.2, "paddingOuter": 0.1}
        return {"field": field, "type": "ordinal", "scale": scale, "axis": shown}
    # Numbers with many digits are powers of ten.
    shown |= {"format": ",.9~g", "tickCount": 7, "labelSeparation": 8}
    if axis.ticks:
        shown["values"] = list(axis.ticks)
    scale = {"type": "linear", "domain": list(domain), "nice": False}
    if axis.log:
        scale["type"] = "log"
    return {"field": field, "type": "quantitative", "scale": scale, "axis": shown}


def _legend(chart: Chart, styles: Styles, theme: Mapping[str, str]) -> dict[str, Spec]:
    """Name -> how its symbol is drawn; measured series first. A name that several lines share has no colour."""
    legend: dict[str, Spec] = {}
    shown = [(series, panel) for panel in chart.panels for series in panel.series]
    shown.sort(key=lambda item: (item[0].dashed, item[0].kind == "cross", item[0].muted))
    for series, panel in shown:
        style = styles.of(series, panel)
        colour = theme[style.colour]
        symbol = {"shape": _SYMBOLS.get(series.kind, style.mark), "stroke": colour, "fill": colour}
        if style.hollow:
            symbol["fill"] = "transparent"
        first = legend.setdefault(escaped(series.name), symbol | {"strokeDash": style.dash})
        if first["stroke"] != colour:
            first["stroke"] = theme["muted"]
            if not style.hollow:
                first["fill"] = theme["muted"]
    return legend


def _legend_layer(legend: Mapping[str, Spec]) -> Spec:
    """A layer without data, whose scales have the names and symbols of the legend."""
    encoding: Spec = {}
    for channel in _LEGEND_CHANNELS:
        scale = {"domain": list(legend), "range": [symbol[channel] for symbol in legend.values()]}
        encoding[channel] = {"field": "series", "type": "nominal", "scale": scale, "legend": {}}
    return {"data": {"values": []}, "mark": {"type": "point"}, "encoding": encoding}


def _picture(picture: str) -> Spec:
    """A picture at the upper left of its panel."""
    mark = {"type": "image", "url": f"data:image/jpeg;base64,{picture}", "align": "left", "baseline": "top"}
    corners = {"x": {"value": 0}, "y": {"value": 0}, "x2": {"value": "width"}, "y2": {"value": "height"}}
    return {"data": {"values": [{}]}, "mark": mark | {"aspect": True}, "encoding": corners}


def _number(value: float | str | None, axis: PlotAxis | None = None) -> float | None:
    """A number as JSON has it; None if the axis cannot show it."""
    if value is None or isinstance(value, str):
        return None
    if axis is not None and axis.log and value <= 0:
        return None
    return rounded(value, _DIGITS)


def _config(theme: Mapping[str, str]) -> Spec:
    ink, muted, grid = theme["ink"], theme["muted"], theme["grid"]
    return {
        "font": _FONT,
        "view": {"stroke": None},
        "concat": {"spacing": 26},
        "title": {"anchor": "start", "color": ink, "fontSize": 13},
        "axis": {
            "labelColor": ink, "titleColor": ink, "domainColor": muted, "tickColor": muted, "gridColor": grid,
            "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        },
        "legend": {
            "labelColor": ink, "title": None, "labelFontSize": 12, "labelLimit": 0, "symbolSize": 90,
            "symbolOpacity": 1, "orient": "bottom", "direction": "horizontal",
        },
    }  # fmt: skip
