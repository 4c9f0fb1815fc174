"""Draws a chart as PNG and SVG."""

from __future__ import annotations

import io
import math
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_ray.analysis.figures.bars import bar_base, bar_offsets
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series, is_finite
from dmls_ray.analysis.figures.jpeg import REFUSED, decode_jpeg
from dmls_ray.analysis.figures.style_matplotlib import BLACK, GREY, MatplotlibStyle, legend_entries, matplotlib_styles
from dmls_ray.util.atomic import atomic_replace
from dmls_ray.util.text import escape_control_chars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = (4.4, 3.5)
_LEGEND = 2.6
_NOTE = 0.17
"""Inches: a panel, the legend beside them, a line of the notes below."""
_COLUMNS = 3
_SHADED = 8
"""Connected points from which on their intervals are an area: so many bars would hide the points."""
_MARKS_A_LINE = 6
_TICKS = 8
"""Measured values up to which they are the ticks of a logarithmic axis."""
_DECADES = 5
"""Powers of ten up to which a logarithmic axis has ticks at 2 and 5, too."""
_ROOM = 1.06
"""How far an axis from zero goes beyond its largest value."""
_LABEL = 36
"""Characters that have room along a panel's height."""
_NAMES = 16
"""Names written along an axis; of more, every so many."""

_STYLE: Any = {
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "none",  # text stays text, to be searched and read aloud
    "svg.hashsalt": "dmls_ray",  # the same chart makes the same file
    "svg.image_inline": True,
    "savefig.dpi": 150,
    # What a configuration is called is text, and neither a formula nor a program of TeX's.
    "text.parse_math": False,
    "text.usetex": False,
}


def save(chart: Chart, folder: str | os.PathLike[str]) -> list[Path]:
    """Write <name>.png and <name>.svg into a folder, which is made if need be.

    Returns:
        The two files. A chart's SVG is the same, byte for byte, whenever one version of matplotlib draws it.
    """
    import matplotlib

    into = Path(folder)
    into.mkdir(parents=True, exist_ok=True)
    paths = []
    with matplotlib.rc_context(_STYLE):
        figure, title = draw(chart), escape_control_chars(chart.title)
        for form, metadata in (("png", {"Title": title}), ("svg", {"Title": title, "Date": None})):
            drawn = io.BytesIO()
            figure.savefig(drawn, format=form, metadata=metadata)
            path = into / f"{chart.name}.{form}"
            with atomic_replace(path) as aside:
                aside.write_bytes(drawn.getvalue())
            paths.append(path)
    return paths


def draw(chart: Chart) -> Figure:
    """The chart as a figure of matplotlib's, apart from pyplot and from its other figures."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.legend_handler import HandlerPatch
    from matplotlib.patches import Rectangle

    legend = legend_entries(chart)
    # Four go two by two; else as many side by side as a page holds.
    columns = min(len(chart.panels), 2 if len(chart.panels) == 4 else _COLUMNS)
    lines = math.ceil(len(chart.panels) / columns)
    width = columns * _PANEL[0] + (_LEGEND if legend else 0)
    notes = [line for note in chart.notes for line in textwrap.wrap(escape_control_chars(note), int(width * 14))]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, lines * _PANEL[1] + 0.4 + _NOTE * len(notes)), layout="constrained")
        looks = matplotlib_styles(chart)
        places = list(figure.subplots(lines, columns, squeeze=False).flat)
        for axes, panel in zip(places, chart.panels, strict=False):
            if panel.picture:
                _draw_picture(axes, panel)
            else:
                _draw_panel(axes, panel, looks)
        for axes in places[len(chart.panels) :]:
            axes.remove()
        figure.suptitle(escape_control_chars(chart.title), x=0.01, ha="left", fontsize=12, fontweight="bold")
        if legend:
            handles = [_handle(series, look) for series, look in legend.values()]
            names = [textwrap.fill(escape_control_chars(name), 34) for name in legend]
            squares = {Rectangle: HandlerPatch(patch_func=_square)}
            figure.legend(handles, names, loc="outside right center", handlelength=3, handler_map=squares)
        if notes:
            figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=8.5, color=GREY)
    return figure


def _draw_picture(axes: Axes, panel: Panel) -> None:
    axes.set_axis_off()
    axes.set_title(escape_control_chars(panel.title))
    image = decode_jpeg(panel.picture)
    if image is None:
        axes.text(0.5, 0.5, textwrap.fill(REFUSED, _LABEL), transform=axes.transAxes, ha="center", va="center")
        return
    axes.imshow(image, aspect="equal", interpolation="antialiased")
    # Its title stands at the height of the others.
    axes.set_anchor("N")


def _draw_panel(axes: Axes, panel: Panel, looks: Mapping[tuple[str, str], MatplotlibStyle]) -> None:
    axes.set(
        xlabel=escape_control_chars(panel.x.label),
        ylabel=escape_control_chars(_broken(panel.y.label)),
        title=escape_control_chars(panel.title),
    )
    _scale(axes, panel)
    dodges = _dodges(panel)
    for series in panel.series:
        look = looks[series.name, series.same_as]
        x = _positions(panel.x, series, dodges.get(series.name, 0.0))
        if series.kind == "band":
            axes.fill_between(x, _plain(series.low), _plain(series.high), color=look.colour, alpha=0.18, linewidth=0)
        elif series.kind == "cross":
            _draw_crosses(axes, x, series, look)
        elif series.kind == "bar":
            _draw_bars(axes, panel, series, look)
        else:
            axes.plot(x, _plain(series.y), **_line(series, look))
            _draw_intervals(axes, x, series, look)
    if panel.x.from_zero and not panel.x.log:
        axes.set_xlim(0, _ROOM * max(axes.dataLim.x1, 0) or 1)
    if panel.y.from_zero and not panel.y.log:
        axes.set_ylim(0, _ROOM * max(axes.dataLim.y1, 0) or 1)


def _broken(text: str) -> str:
    """A label that is longer than its axis, with its unit on a second line."""
    return text if len(text) <= _LABEL else text.replace(" (", "\n(")


def _draw_intervals(axes: Axes, x: Sequence[float], series: Series, look: MatplotlibStyle) -> None:
    if not series.low or not series.high:
        return
    y, low, high = _plain(series.y), _plain(series.low), _plain(series.high)
    if series.connected and len(x) > _SHADED:
        axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)
        return
    below = [middle - end for middle, end in zip(y, low, strict=True)]
    above = [end - middle for middle, end in zip(y, high, strict=True)]
    colour = look.colour
    if series.kind == "bar":
        # Half of it lies within the bar.
        colour = GREY if look.colour == BLACK else BLACK
    axes.errorbar(x, y, yerr=[below, above], fmt="none", ecolor=colour, elinewidth=1, capsize=2.5, alpha=0.8)


def _draw_bars(axes: Axes, panel: Panel, series: Series, look: MatplotlibStyle) -> None:
    width, middles = bar_offsets(panel)
    under = bar_base(panel)
    names = _positions(panel.x, series, 0.0)
    x = [name + middle for name, middle in zip(names, middles[series.name, series.same_as], strict=True)]
    seen = [(place, y) for place, y in zip(x, series.y, strict=True) if is_finite(y) and (y > under or not panel.y.log)]
    axes.bar([place for place, _ in seen], [y - under for _, y in seen], width, under, **_filled(look))
    _draw_intervals(axes, x, series, look)


def _draw_crosses(axes: Axes, x: Sequence[float], series: Series, look: MatplotlibStyle) -> None:
    """At their height, or where there is none at the panel's upper edge."""
    for place, height in zip(x, series.y, strict=True):
        inside = axes.transData if height is not None else axes.get_xaxis_transform()
        y = 0.97 if height is None else height
        axes.plot([place], [y], transform=inside, clip_on=False, **_line(series, look))


def _filled(look: MatplotlibStyle) -> dict[str, Any]:
    """A bar's look in matplotlib's words."""
    alpha = 0.45 if look.hollow else 1.0
    return {"facecolor": look.colour, "edgecolor": "white", "linewidth": 0.5, "hatch": look.hatch, "alpha": alpha}


def _line(series: Series, look: MatplotlibStyle) -> dict[str, Any]:
    """A look in matplotlib's words."""
    if look.dashes:
        return {"color": look.colour, "linestyle": (0, look.dashes), "linewidth": 1.4}
    if series.kind == "cross":
        return {"color": look.colour, "linestyle": "", "marker": look.mark,
                "markersize": 12 - look.depth, "markeredgewidth": 2.2}  # fmt: skip
    if look.ring:
        return {"linestyle": "", "marker": look.mark, "markersize": 13, "markeredgewidth": 1.3,
                "markerfacecolor": "none", "markeredgecolor": look.colour}  # fmt: skip
    joined = series.connected or series.kind == "line"
    return {
        "color": look.colour,
        "linestyle": "-" if joined else "",
        "linewidth": 1.0 if look.hollow else 2.4 - 0.16 * look.depth,
        "marker": look.mark,
        "markersize": (8 if joined else 9) - 0.35 * look.depth,
        "markerfacecolor": "white" if look.hollow else look.colour,
        "markeredgecolor": look.colour if look.hollow else "black",
        "markeredgewidth": 1.2 if look.hollow else 0.5,
        "markevery": max(len(series.x) // _MARKS_A_LINE, 1) if series.kind == "line" else 1,
    }


def _handle(series: Series, look: MatplotlibStyle) -> Any:
    """What stands for a series in the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle

    if series.kind == "band":
        return Patch(facecolor=look.colour, alpha=0.25)
    if series.kind == "bar":
        return Rectangle((0, 0), 1, 1, **_filled(look))
    return Line2D([], [], **_line(series, look))


def _square(*, width: float, height: float, **_: Any) -> Any:
    """A bar's patch in the legend."""
    from matplotlib.patches import Rectangle

    return Rectangle(((width - height) / 2, 0), height, height)


def _positions(axis: Axis, series: Series, dodge: float) -> list[float]:
    if axis.categories:
        places = {name: float(place) for place, name in enumerate(axis.categories)}
        return [places[str(value)] + dodge for value in series.x]
    return [float(value) for value in series.x]


def _dodges(panel: Panel) -> dict[str, float]:
    """On an axis of names, how far each series stands beside the name, so that they do not hide each other."""
    if not panel.x.categories:
        return {}
    names = list(dict.fromkeys(series.name for series in panel.series if series.kind == "points"))
    step = 0.7 / max(len(names), 2)
    return {name: (place - (len(names) - 1) / 2) * step for place, name in enumerate(names)}


def _scale(axes: Axes, panel: Panel) -> None:
    """Scales and ticks: measured values where they are few, and plain numbers rather than powers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    x = [value for series in panel.series for value in series.x]
    y = [value for series in panel.series for value in (*series.y, *series.low, *series.high)]
    for axis, on, scale, drawn in (
        (panel.x, axes.xaxis, axes.set_xscale, x), (panel.y, axes.yaxis, axes.set_yscale, y)
    ):  # fmt: skip
        if axis.log:
            scale("log")
            # Between so many powers of ten there is no room for more.
            on.set_major_locator(LogLocator(subs=(1,) if _decades(drawn) > _DECADES else (1, 2, 5)))
            on.set_minor_locator(NullLocator())
        on.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))
    if panel.x.categories:
        _name_ticks(axes, panel.x.categories)
        return
    measured = [series for series in panel.series if series.kind in ("points", "cross")]
    values = sorted({float(value) for series in measured for value in series.x})
    if values and all(value.is_integer() for value in values):
        if not panel.x.log:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        elif len(values) <= _TICKS and _last(panel) <= values[-1]:
            axes.xaxis.set_major_locator(FixedLocator(values))


def _decades(values: Iterable[float | str | None]) -> float:
    """How many powers of ten a logarithmic axis spans."""
    seen = [value for value in values if not isinstance(value, str) and is_finite(value) and value > 0]
    return math.log10(max(seen)) - math.log10(min(seen)) if seen else 0.0


def _last(panel: Panel) -> float:
    """How far an axis of numbers goes: a curve may go beyond what was measured."""
    return max(float(value) for series in panel.series for value in series.x)


def _name_ticks(axes: Axes, names: Sequence[str]) -> None:
    names = [escape_control_chars(name) for name in names]
    shown = range(0, len(names), math.ceil(len(names) / _NAMES))
    axes.set_xticks(list(shown), [textwrap.fill(names[place], 18) for place in shown])
    axes.set_xlim(-0.5, len(names) - 0.5)
    if sum(len(names[place]) for place in shown) > 45:
        for text in axes.get_xticklabels():
            text.set(rotation=30, ha="right", rotation_mode="anchor")


def _plain(values: Sequence[float | None]) -> list[float]:
    """None as what matplotlib leaves out."""
    return [math.nan if value is None else float(value) for value in values]
