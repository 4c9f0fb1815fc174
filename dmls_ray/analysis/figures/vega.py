"""A chart as a Vega-Lite specification, the same for the report and for files.

Domains, ticks, and the ends of bars and intervals are computed here. Vega-Lite would extend a domain below 0, and does
not stack bars of different layers. Texts of users are values of data, titles and categories, which Vega-Lite takes
literally; no name of a field and no expression contains them.

One module because it is the only one that knows Vega-Lite.
"""

from __future__ import annotations

import math
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Axis, Chart, Panel, Series, is_finite, rounded
from dmls_ray.analysis.figures.style import LIGHT, Style, Styles
from dmls_ray.util.atomic import atomic_replace
from dmls_ray.util.text import escape_control_chars as escaped

WIDTH, HEIGHT = 330, 250
"""Size of the axes of a panel in pixels; the page sets another one."""

_FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif'
_MAX_COLUMNS = 3
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
    columns = min(len(chart.panels), _MAX_COLUMNS)
    if len(chart.panels) == 4:
        columns = 2
    panels = [_PanelSpec(chart, number, styles, theme) for number in range(len(chart.panels))]
    for places in chart.shared_scales:
        ends = [end for place in places for end in panels[place].y_domain]
        for place in places:
            panels[place].y_domain = (min(ends), max(ends))
    concat, axes, datasets = [], [], {}
    for panel in panels:
        concat.append(panel.spec())
        axes.append([escaped(panel.panel.x.label), escaped(panel.panel.y.label)])
        datasets.update(panel.datasets)
    legend = _legend(chart, styles, theme)
    if len(legend) > 1:
        first = next(spec for spec in concat if "layer" in spec)
        first["layer"].append(_legend_layer(legend))
    names = list(legend)
    longest = max(map(len, names), default=0)
    config = _config(theme)
    config["legend"]["columns"] = max(1, columns * (WIDTH + 70) // (45 + 7 * longest))
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": theme["paper"],
        "config": config,
        "usermeta": {"axes": axes, "names": names},
        "datasets": datasets,
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
    notes = []
    for note in chart.notes:
        notes += textwrap.wrap(escaped(note), width)
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
        self.base = _base(panel)
        self.lines = _names_side_by_side(panel)
        self.datasets: dict[str, list[Spec]] = {}
        self.drawn: list[tuple[str, Series]] = []
        tops: dict[str, float] = {}
        x: list[Any] = []
        y: list[Any] = []
        # Bands first, so that they lie under their series.
        for series in sorted(panel.series, key=lambda item: item.kind != "band"):
            rows = self._rows(series)
            if series.kind == "bar":
                self._add_bar_ends(rows, tops)
            for row in rows:
                x.append(row["x"])
                y += [row["y"], row["low"], row["high"], row.get("top")]
            name = f"panel{number}_series{len(self.drawn)}"
            self.datasets[name] = rows
            self.drawn.append((name, series))
        self.x_domain, self.y_domain = _domain(panel.x, x), _domain(panel.y, y)
        if tops:
            self.y_domain = (self.base, self.y_domain[1])

    def spec(self) -> Spec:
        """The view of the panel."""
        spec: Spec = {"width": WIDTH, "height": HEIGHT}
        if self.panel.title:
            spec["title"] = {"text": escaped(self.panel.title), "fontSize": 12}
        if self.panel.picture:
            return spec | _picture(self.panel.picture)
        layers = []
        for name, series in self.drawn:
            for layer in self._layers(series):
                layers.append({"data": {"name": name}, **layer})
        x = {"field": "x", **_channel(self.panel.x, self.x_domain, _ticks(self.panel, self.x_domain))}
        y = {"field": "y", **_channel(self.panel.y, self.y_domain, _log_ticks(self.panel.y, self.y_domain))}
        return spec | {"encoding": {"x": x, "y": y}, "layer": layers}

    def _rows(self, series: Series) -> list[Spec]:
        """A row for each point; the page reads it, too."""
        y_axis = self.panel.y
        rows = []
        points: Iterable[Any] = zip_longest(series.x, series.y, series.low, series.high, series.texts, series.runs)
        for x, y, low, high, text, runs in points:
            row = {
                "panel": self.number,
                "series": escaped(series.name),
                "line": escaped(series.same_as or series.name),
                "x": _number(x, self.panel.x),
                "y": _number(y, y_axis),
                "low": _number(low),
                "high": _number(high, y_axis),
                "text": escaped(text or ""),
                "runs": runs or (),
            }
            if self.panel.x.categories:
                row["x"] = escaped(str(x))
            if y_axis.log and row["low"] is not None:
                row["low"] = max(row["low"], self.base)
            rows.append(row)
        return rows

    def _add_bar_ends(self, rows: Sequence[Spec], tops: dict[str, float]) -> None:
        """Where each bar begins and ends: stacked bars on those before."""
        for row in rows:
            if row["y"] is None:
                continue
            row["foot"], row["top"] = self.base, row["y"]
            if self.panel.stacked:
                row["foot"] = tops.get(row["x"], 0.0)
                row["top"] = row["foot"] + row["y"]
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
            if joined and len(series.x) > _MAX_ERROR_BARS:
                layers.append(self._area(style, 0.15))
            else:
                layers.append(self._error_bars(style, series.kind))
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
        colour = self.theme[style.colour]
        if kind == "bar":
            # Half of the interval lies within the bar.
            colour = self.theme["ink"]
        mark = {"type": "errorbar", "color": colour, "thickness": 1.3, "ticks": {"size": 6}}
        return {"mark": mark, "encoding": _ends("low", "high") | self._side_by_side()}

    def _points(self, series: Series, style: Style) -> Spec:
        colour = self.theme[style.colour]
        mark = {
            "type": "point", "shape": style.mark, "size": style.size, "opacity": 1, "fill": colour, "stroke": colour,
            "strokeWidth": 0.5, "cursor": "pointer",
        }  # fmt: skip
        if style.hollow:
            mark |= {"fill": self.theme["paper"], "strokeWidth": 1.5}
        if style.ring:
            mark["fill"] = "transparent"
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
    names: list[str] = []
    for series in panel.series:
        name = escaped(series.same_as or series.name)
        if series.kind in ("points", "bar", "cross") and name not in names:
            names.append(name)
    return names


def _base(panel: Panel) -> float:
    """Where bars and intervals end below: 0, or on a logarithmic axis the power of ten below all values."""
    if not panel.y.log:
        return 0.0
    values = [_number(value, panel.y) for series in panel.series for value in series.y]
    least = min(filter(None, values), default=1.0)
    return max(10.0 ** (math.ceil(math.log10(least)) - 1), sys.float_info.min)


def _domain(axis: Axis, values: Iterable[Any]) -> tuple[float, float]:
    """The ends of an axis with room around the values."""
    if axis.categories:
        return (0.0, 1.0)
    finite = [value for value in values if is_finite(value)] or [1.0]
    low, high = min(finite), max(finite)
    if axis.log:
        room = max((high / low) ** _ROOM, 1 + _ROOM)
        return (low / room, min(high * room, sys.float_info.max))
    if axis.from_zero:
        low = min(0.0, low)
    room = _ROOM * (high - low) or abs(high) or 1.0
    if axis.from_zero and low == 0.0:
        return (low, high + room)
    return (low - room, high + room)


def _channel(axis: Axis, domain: tuple[float, float], ticks: Sequence[float]) -> Spec:
    """Scale and axis of one direction."""
    shown: Spec = {"title": _lines(escaped(axis.label)) or None}
    if axis.categories:
        names = list(map(escaped, axis.categories))
        shown |= {"labelAngle": 0, "labelLimit": 220, "labelOverlap": len(names) > MAX_CATEGORIES, "grid": False}
        if 7 * len("  ".join(names)) > WIDTH:
            shown["labelAngle"] = -30
        scale = {"type": "band", "domain": names, "paddingInner": 0.2, "paddingOuter": 0.1}
        return {"type": "ordinal", "scale": scale, "axis": shown}
    shown |= {"format": ",.5~r", "tickCount": 7}
    if not 1e-3 <= max(map(abs, domain)) < 1e9:
        # Powers of ten for numbers with many digits.
        shown["format"] = ".3~e"
    if ticks:
        shown["values"] = list(ticks)
    scale = {"type": "linear", "domain": list(domain), "nice": False}
    if axis.log:
        scale["type"] = "log"
    return {"type": "quantitative", "scale": scale, "axis": shown}


def _ticks(panel: Panel, domain: tuple[float, float]) -> list[float]:
    """The measured values of x, if they are few, round and far enough from each other."""
    axis = panel.x
    values: set[Any] = set()
    for series in panel.series:
        if series.kind not in ("line", "band"):
            values.update(_number(x, axis) for x in series.x)
    ticks = sorted(values - {None})
    if axis.categories or not ticks or len(ticks) > _MAX_TICKS:
        return _log_ticks(axis, domain)
    low, *positions, high = [domain[0], *ticks, domain[1]]
    if axis.log:
        low, *positions, high = map(math.log, [low, *positions, high])
    gaps = [after - before for before, after in pairwise(positions)]
    is_crowded = min(gaps, default=math.inf) < 0.05 * (high - low)
    ends_early = positions[-1] < low + 0.7 * (high - low)
    if is_crowded or ends_early or not all(_is_round(tick, axis) for tick in ticks):
        return _log_ticks(axis, domain)
    return ticks


def _is_round(tick: float, axis: Axis) -> bool:
    """Whether a value is whole, or on a logarithmic axis has few digits."""
    return float(tick).is_integer() or (axis.log and tick == rounded(tick, 4))


def _log_ticks(axis: Axis, domain: tuple[float, float]) -> list[float]:
    """Ticks of a logarithmic axis; none if Vega's are better."""
    if not axis.log or axis.categories:
        return []
    low, high = math.log10(domain[0]), math.log10(domain[1])
    factors = next(ticks for most, ticks in _TICK_FACTORS.items() if high - low <= most)
    ticks = []
    for power in range(math.floor(low), min(math.ceil(high), sys.float_info.max_10_exp) + 1):
        ticks += [factor * 10.0**power for factor in factors if low <= math.log10(factor) + power <= high]
    return ticks if len(ticks) > 1 else []


def _legend(chart: Chart, styles: Styles, theme: Mapping[str, str]) -> dict[str, Spec]:
    """Name -> how its symbol is drawn; measured series first. A name that several lines share has no colour."""
    legend: dict[str, Spec] = {}
    leaders: dict[str, str] = {}
    shown = [(series, panel) for panel in chart.panels for series in panel.series]
    shown.sort(key=lambda item: _place_in_legend(item[0]))
    for series, panel in shown:
        name = escaped(series.name)
        if series.kind == "band" and series.same_as:
            continue
        if leaders.setdefault(name, series.same_as) != series.same_as:
            legend[name] |= {"stroke": theme["muted"], "fill": theme["muted"]}
            continue
        style = styles.of(series, panel, chart)
        colour, shape = theme[style.colour], _SYMBOLS.get(series.kind, style.mark)
        symbol = {"shape": shape, "stroke": colour, "fill": colour, "strokeDash": style.dash}
        if style.hollow:
            symbol["fill"] = "transparent"
        legend.setdefault(name, symbol)
    return legend if len(legend) <= _MAX_LEGEND else {}


def _place_in_legend(series: Series) -> tuple[bool, bool, bool]:
    return (series.dashed or series.kind == "band", series.kind == "cross", series.muted)


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
    lines = []
    for part in label.split("\n"):
        lines += textwrap.wrap(part, _MAX_LINE)
    return lines


def _picture(picture: str) -> Spec:
    """A picture at the upper left of its panel."""
    mark = {"type": "image", "url": f"data:image/jpeg;base64,{picture}", "align": "left", "baseline": "top"}
    corners = {"x": {"value": 0}, "y": {"value": 0}, "x2": {"value": "width"}, "y2": {"value": "height"}}
    return {"data": {"values": [{}]}, "mark": mark | {"aspect": True}, "encoding": corners}


def _ends(low: str, high: str) -> Spec:
    return {"y": {"field": low, "type": "quantitative"}, "y2": {"field": high}}


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
