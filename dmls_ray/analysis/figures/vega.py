"""A chart as a Vega-Lite specification, the same for the report and for files.

Domains, ticks, and the ends of bars and intervals are computed here. Vega-Lite would extend a domain below 0, and does
not stack bars of different layers. Texts of users are values of data, titles and categories, which Vega-Lite takes
literally; no name of a field and no expression contains them.
"""

from __future__ import annotations

import math
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Axis, Chart, Panel, Series, is_finite, rounded
from dmls_ray.analysis.figures.style import LIGHT, Style, Styles
from dmls_ray.util.atomic import atomic_replace
from dmls_ray.util.text import escape_control_chars as escaped

WIDTH, HEIGHT = 330, 250
"""Size of the axes of a panel in pixels; the page sets another one."""

_FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif'
_MAX_LEGEND = 20
"""Series up to which there is a legend; with more, each series is named on hover and in the values of the figure."""
_MAX_TICKS = 9
"""Measured values of x that have a tick each."""
_TICK_FACTORS = {1.0: (1, 1.5, 2, 3, 4, 5, 6, 8), 5.0: (1, 2, 5), math.inf: (1,)}
"""Powers of ten that a logarithmic axis spans at most -> its ticks within each power of ten."""
_MAX_ERROR_BARS = 8
"""Connected points with error bars; with more points the intervals are an area."""
_MAX_LINE = 36
"""Characters of one line of a label."""
_ROOM = 0.05
"""Room between the values and the end of an axis, as a fraction of the axis."""
_DIGITS = 7
"""Digits of a number; the page shows fewer."""
_EDGE = 6
"""Pixels between the upper edge of a panel and a cross without a value."""

Spec = dict[str, Any]


def vega_lite(chart: Chart, styles: Styles, theme: Mapping[str, str]) -> Spec:
    """The specification, without title and notes.

    `usermeta` has the labels of the axes of each panel and the names of the legend, for the page.

    Args:
        chart: the chart.
        styles: the styles of all charts of a report.
        theme: `LIGHT`, `DARK` or `PAGE`.
    """
    columns = min(len(chart.panels), 2 if len(chart.panels) == 4 else 3)
    panels = [_PanelSpec(chart, number, styles, theme) for number in range(len(chart.panels))]
    for places in chart.shared_scales:
        ends = [end for place in places for end in panels[place].y_domain]
        for place in places:
            panels[place].y_domain = (min(ends), max(ends))
    concat = [panel.spec() for panel in panels]
    legend = _legend(chart, styles, theme)
    if len(legend) > 1:
        first = next(spec for spec in concat if "layer" in spec)
        first["layer"].append(_legend_layer(legend))
    names = list(legend)
    longest = max(map(len, names), default=0)
    config = _config(theme)
    config["legend"]["columns"] = max(1, columns * (WIDTH + 70) // (45 + 7 * longest))
    axes = [[escaped(panel.x.label), escaped(panel.y.label)] for panel in chart.panels]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": theme["paper"],
        "config": config,
        "usermeta": {"axes": axes, "names": names},
        "datasets": {name: rows for panel in panels for name, rows in panel.datasets.items()},
        "concat": concat,
        "columns": columns,
        "resolve": {"scale": dict.fromkeys(_LEGEND_CHANNELS, "shared")},
    }


def save(charts: Sequence[Chart], folder: str | os.PathLike[str]) -> list[Path]:
    """Write each chart as <name>.png, <name>.svg and <name>.pdf into a folder; make the folder if it is missing.

    Returns:
        The files. They are the same byte for byte with the same version of vl-convert and the same fonts.
    """
    import vl_convert

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    styles = Styles(charts)
    paths = []
    for chart in charts:
        svg = vl_convert.vegalite_to_svg(_with_texts(chart, vega_lite(chart, styles, LIGHT)))
        contents = {
            "png": vl_convert.svg_to_png(svg, scale=2),
            "svg": svg.encode(),
            "pdf": vl_convert.svg_to_pdf(svg),
        }
        for extension, content in contents.items():
            path = target / f"{chart.name}.{extension}"
            with atomic_replace(path) as temporary:
                temporary.write_bytes(content)
            paths.append(path)
    return paths


def _with_texts(chart: Chart, spec: Spec) -> Spec:
    """The specification of a file, with title and notes."""
    width = spec["columns"] * 58
    notes = [line for note in chart.notes for line in textwrap.wrap(escaped(note), width)]
    below = {"text": notes, "orient": "bottom", "fontSize": 11, "fontWeight": "normal", "color": LIGHT["muted"]}
    whole = {name: spec.pop(name) for name in ("$schema", "background", "config", "datasets")}
    if notes:
        spec["title"] = below
    title = {"text": escaped(chart.title), "fontSize": 14}
    return {**whole, "padding": 12, "title": title, "vconcat": [spec]}


class _PanelSpec:
    """One panel: its data, its domains and its layers."""

    def __init__(self, chart: Chart, number: int, styles: Styles, theme: Mapping[str, str]) -> None:
        panel = chart.panels[number]
        self.chart, self.panel, self.number, self.styles, self.theme = chart, panel, number, styles, theme
        self.floor = _floor(panel)
        self.lines = _names_side_by_side(panel)
        # Bands first, so that they lie under their series.
        self.series = sorted((item for item in panel.series if item.x), key=lambda item: item.kind != "band")
        self.rows = [self._rows(series) for series in self.series]
        self._add_bar_ends()
        x = [row.get("x") for rows in self.rows for row in rows]
        y = [row.get(name) for rows in self.rows for row in rows for name in ("y", "low", "high", "foot", "top")]
        self.x_domain, self.y_domain = _domain(panel.x, x), _domain(panel.y, y)
        if self._bars():
            self.y_domain = (self.floor, self.y_domain[1])

    @property
    def datasets(self) -> dict[str, list[Spec]]:
        """The rows of each series."""
        return {self._dataset(place): rows for place, rows in enumerate(self.rows)}

    def spec(self) -> Spec:
        """The view of the panel."""
        spec: Spec = {"width": WIDTH, "height": HEIGHT}
        if self.panel.title:
            spec["title"] = {"text": escaped(self.panel.title), "fontSize": 12}
        if self.panel.picture:
            return spec | _picture(self.panel.picture)
        layers = []
        for place, series in enumerate(self.series):
            data = {"data": {"name": self._dataset(place)}}
            layers += [data | layer for layer in self._layers(series)]
        x = {"field": "x", **_channel(self.panel.x, self.x_domain, _ticks(self.panel, self.x_domain))}
        y = {"field": "y", **_channel(self.panel.y, self.y_domain, _log_ticks(self.panel.y, self.y_domain))}
        return spec | {"encoding": {"x": x, "y": y}, "layer": layers}

    def _dataset(self, place: int) -> str:
        return f"panel{self.number}_series{place}"

    def _bars(self) -> list[list[Spec]]:
        return [rows for series, rows in zip(self.series, self.rows, strict=True) if series.kind == "bar"]

    def _rows(self, series: Series) -> list[Spec]:
        """A row for each point; the page reads it, too."""
        y_axis = self.panel.y
        rows = []
        for place, x in enumerate(series.x):
            low = _number(_at(series.low, place))
            if low is not None and y_axis.log:
                low = max(low, self.floor)
            row = {
                "panel": self.number,
                "series": escaped(series.name),
                "line": escaped(series.same_as or series.name),
                "x": escaped(str(x)) if self.panel.x.categories else _number(x, self.panel.x),
                "y": _number(_at(series.y, place), y_axis),
                "low": low,
                "high": _number(_at(series.high, place), y_axis),
                "text": escaped(_at(series.texts, place) or ""),
                "runs": _at(series.runs, place) or (),
            }
            rows.append(row)
        return rows

    def _add_bar_ends(self) -> None:
        """Where each bar begins and ends: stacked bars on each other."""
        tops: dict[str, float] = {}
        for rows in self._bars():
            for row in rows:
                if row["y"] is None:
                    continue
                foot = tops.get(row["x"], self.floor) if self.panel.stacked else self.floor
                row["foot"] = foot
                row["top"] = foot + row["y"] if self.panel.stacked else row["y"]
                tops[row["x"]] = row["top"]

    def _layers(self, series: Series) -> list[Spec]:
        style = self.styles.of(series, self.panel, self.chart)
        if series.kind == "band":
            return [self._area(style, 0.18)]
        joined = series.kind == "line" or (series.connected and not self.panel.x.categories)
        layers = []
        if series.kind == "bar":
            layers.append(self._bar(style))
        if series.low and series.kind in ("points", "bar"):
            as_area = joined and len(series.x) > _MAX_ERROR_BARS
            layers.append(self._area(style, 0.15) if as_area else self._error_bars(style, series.kind))
        if joined:
            layers.append(self._line(style))
        if series.kind in ("points", "bound", "cross"):
            layers.append(self._points(series, style))
        return layers

    def _area(self, style: Style, opacity: float) -> Spec:
        mark = {"type": "area", "opacity": opacity, "color": self.theme[style.colour], "interpolate": "linear"}
        return {"mark": mark, "encoding": _ends("low", "high")}

    def _line(self, style: Style) -> Spec:
        mark = {"type": "line", "strokeWidth": 1.8, "color": self.theme[style.colour], "strokeDash": style.dash}
        return {"mark": mark, "encoding": {"order": {"value": None}}}

    def _bar(self, style: Style) -> Spec:
        colour, paper = self.theme[style.colour], self.theme["paper"]
        mark = {"type": "bar", "color": colour, "stroke": paper, "strokeWidth": 0.7, "cursor": "pointer"}
        if style.hollow:
            mark["opacity"] = 0.45
        return {"mark": mark, "encoding": _ends("foot", "top") | self._side_by_side()}

    def _error_bars(self, style: Style, kind: str) -> Spec:
        # Half of a bar's interval lies within the bar.
        colour = self.theme["ink" if kind == "bar" else style.colour]
        mark = {"type": "errorbar", "color": colour, "thickness": 1.3, "ticks": {"size": 6}}
        return {"mark": mark, "encoding": _ends("low", "high") | self._side_by_side()}

    def _points(self, series: Series, style: Style) -> Spec:
        colour = self.theme[style.colour]
        fill = self.theme["paper"] if style.hollow else colour
        if style.ring:
            fill = "transparent"
        mark = {
            "type": "point", "shape": style.mark, "size": style.size, "opacity": 1, "fill": fill, "stroke": colour,
            "strokeWidth": 1.5 if style.hollow else 0.5, "cursor": "pointer",
        }  # fmt: skip
        encoding = self._side_by_side()
        if series.kind == "cross" and not any(map(is_finite, series.y)):
            encoding["y"] = {"value": _EDGE}
        return {"mark": mark, "encoding": encoding}

    def _side_by_side(self) -> Spec:
        """The place of a mark within its category, so that series do not hide each other."""
        if len(self.lines) < 2:
            return {}
        return {"xOffset": {"field": "line", "type": "nominal", "scale": {"domain": self.lines}}}


def _names_side_by_side(panel: Panel) -> list[str]:
    """The names that have a place each within a category."""
    if not panel.x.categories or panel.stacked:
        return []
    drawn = [series for series in panel.series if series.kind in ("points", "bar", "cross")]
    return list(dict.fromkeys(escaped(series.same_as or series.name) for series in drawn))


def _floor(panel: Panel) -> float:
    """Where bars and intervals end below: 0, or on a logarithmic axis the power of ten below all values."""
    if not panel.y.log:
        return 0.0
    values = [value for series in panel.series for value in series.y if is_finite(value) and value > 0]
    return max(10.0 ** (math.ceil(math.log10(min(values, default=1.0))) - 1), sys.float_info.min)


def _domain(axis: Axis, values: Iterable[Any]) -> tuple[float, float]:
    """The ends of an axis with room around the values."""
    if axis.categories:
        return (0.0, 1.0)
    finite = [value for value in values if is_finite(value)]
    low, high = min(finite, default=1.0), max(finite, default=1.0)
    if axis.log:
        room = max((high / low) ** _ROOM, 1.05)
        return (low / room, min(high * room, sys.float_info.max))
    room = _ROOM * (high - min(low, 0.0) if axis.from_zero else high - low)
    room = room or abs(high) or 1.0
    return (min(0.0, low) if axis.from_zero else low - room, high + room)


def _channel(axis: Axis, domain: tuple[float, float], ticks: Sequence[float]) -> Spec:
    """Scale and axis of one direction."""
    shown: Spec = {"title": _lines(escaped(axis.label)) or None}
    if axis.categories:
        names = [escaped(name) for name in axis.categories]
        shown |= {
            "labelAngle": -30 if 7 * len("  ".join(names)) > WIDTH else 0,
            "labelLimit": 220,
            "labelOverlap": len(names) > MAX_CATEGORIES,
            "grid": False,
        }
        scale = {"type": "band", "domain": names, "paddingInner": 0.2, "paddingOuter": 0.1}
        return {"type": "ordinal", "scale": scale, "axis": shown}
    largest = max(map(abs, domain))
    # Powers of ten only for numbers with many digits.
    shown["format"] = ",.5~r" if 1e-3 <= largest < 1e9 else ".3~e"
    shown |= {"values": list(ticks)} if ticks else {"tickCount": 7}
    scale = {"type": "log" if axis.log else "linear", "domain": list(domain), "nice": False}
    return {"type": "quantitative", "scale": scale, "axis": shown}


def _ticks(panel: Panel, domain: tuple[float, float]) -> list[float]:
    """The measured values of x, if they are few, round and far enough from each other."""
    axis = panel.x
    if axis.categories:
        return []
    values = {_number(x, axis) for series in panel.series if series.kind not in ("line", "band") for x in series.x}
    ticks = sorted(value for value in values if value is not None)
    digits = 4 if axis.log else 0
    are_round = all(float(value).is_integer() or value == rounded(value, digits) for value in ticks)
    if not (1 <= len(ticks) <= _MAX_TICKS and are_round):
        return _log_ticks(axis, domain)
    ends = domain
    positions: Sequence[float] = ticks
    if axis.log:
        ends = (math.log(domain[0]), math.log(domain[1]))
        positions = [math.log(value) for value in ticks]
    gaps = [after - before for before, after in pairwise(positions)]
    is_crowded = min(gaps, default=math.inf) < 0.05 * (ends[1] - ends[0])
    goes_beyond = positions[-1] < ends[0] + 0.7 * (ends[1] - ends[0])
    return _log_ticks(axis, domain) if is_crowded or goes_beyond else ticks


def _log_ticks(axis: Axis, domain: tuple[float, float]) -> list[float]:
    """Ticks of a logarithmic axis; none if Vega's are better."""
    if not axis.log or axis.categories:
        return []
    low, high = (math.log10(end) for end in domain)
    factors = next(ticks for most, ticks in _TICK_FACTORS.items() if high - low <= most)
    powers = range(math.floor(low), min(math.ceil(high), sys.float_info.max_10_exp) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    inside = [tick for tick in ticks if domain[0] <= tick <= domain[1]]
    return inside if len(inside) > 1 else []


def _legend(chart: Chart, styles: Styles, theme: Mapping[str, str]) -> dict[str, Spec]:
    """Name -> how its symbol is drawn; measured series first. A name that several lines share has no colour."""
    everything = [(series, styles.of(series, panel, chart)) for panel in chart.panels for series in panel.series]
    everything.sort(key=lambda item: (item[0].dashed or item[0].kind == "band", item[0].kind == "cross", item[0].muted))
    leaders: dict[str, set[str]] = {}
    for series, _ in everything:
        leaders.setdefault(series.name, set()).add(series.same_as)
    legend: dict[str, Spec] = {}
    for series, style in everything:
        if series.kind == "band" and series.same_as:
            continue
        colour = theme[style.colour if len(leaders[series.name]) == 1 else "muted"]
        symbol = {
            "shape": _SYMBOLS.get(series.kind, style.mark),
            "stroke": colour,
            "fill": "transparent" if style.hollow else colour,
            "strokeDash": style.dash,
        }
        legend.setdefault(escaped(series.name), symbol)
    return legend if len(legend) <= _MAX_LEGEND else {}


_LEGEND_CHANNELS = ("shape", "stroke", "fill", "strokeDash")
_SYMBOLS = {"line": "stroke", "band": "square", "bar": "square"}
"""Kind of a series -> its symbol in the legend, where it has no mark."""


def _legend_layer(legend: Mapping[str, Spec]) -> Spec:
    """A layer without data, whose scales have the names and symbols of the legend."""
    encoding: Spec = {}
    for channel in _LEGEND_CHANNELS:
        scale = {"domain": list(legend), "range": [symbol[channel] for symbol in legend.values()]}
        encoding[channel] = {"field": "series", "type": "nominal", "scale": scale, "legend": {}}
    return {"data": {"values": []}, "mark": {"type": "point"}, "encoding": encoding}


def _lines(label: str) -> list[str]:
    """A label in lines that fit the height of a panel, with a long unit in a line of its own."""
    if len(label) > _MAX_LINE:
        label = label.replace(" (", "\n(", 1)
    return [line for part in label.split("\n") for line in textwrap.wrap(part, _MAX_LINE)]


def _picture(picture: str) -> Spec:
    """A picture at the upper left of its panel."""
    mark = {"type": "image", "url": f"data:image/jpeg;base64,{picture}", "align": "left", "baseline": "top"}
    corners = {"x": {"value": 0}, "y": {"value": 0}, "x2": {"value": "width"}, "y2": {"value": "height"}}
    return {"data": {"values": [{}]}, "mark": mark | {"aspect": True}, "encoding": corners}


def _ends(low: str, high: str) -> Spec:
    return {"y": {"field": low, "type": "quantitative"}, "y2": {"field": high}}


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if values else None


def _number(value: float | str | None, axis: Axis | None = None) -> float | None:
    """A number as JSON has it; None if the axis cannot show it."""
    if isinstance(value, str) or not is_finite(value):
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
            "labelColor": ink, "title": None, "labelFontSize": 12, "labelLimit": 400, "symbolSize": 90,
            "symbolOpacity": 1, "orient": "bottom", "direction": "horizontal",
        },
    }  # fmt: skip
