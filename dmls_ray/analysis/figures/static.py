"""Charts as PNG and SVG files, drawn by matplotlib."""

from __future__ import annotations

import io
import math
import os
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_ray.analysis.figures.chart import Chart, Series, SeriesKey
from dmls_ray.analysis.figures.static_panel import (
    GREY,
    bar_options,
    draw_picture,
    draw_series,
    line_options,
    series_colour,
)
from dmls_ray.analysis.figures.style import Style, assign_styles
from dmls_ray.util.atomic import atomic_replace
from dmls_ray.util.text import escape_control_chars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL_INCHES = (4.4, 3.5)
_LEGEND_INCHES = 2.6
_NOTE_INCHES = 0.17
"""Height of one line of the notes."""
_MAX_COLUMNS = 3

_RC_PARAMS: Any = {
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
    "svg.fonttype": "none",  # text stays text, for search and screen readers
    "svg.hashsalt": "dmls_ray",  # the same chart makes the same file
    "svg.image_inline": True,
    "savefig.dpi": 150,
    # The name of a configuration is neither a formula nor a TeX program.
    "text.parse_math": False,
    "text.usetex": False,
}


def save(chart: Chart, folder: str | os.PathLike[str]) -> list[Path]:
    """Write <name>.png and <name>.svg into a folder; make the folder if it is missing.

    Returns:
        The two files. The SVG of a chart is the same byte for byte with the same version of matplotlib.
    """
    import matplotlib

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    with matplotlib.rc_context(_RC_PARAMS):
        figure, title = draw(chart), escape_control_chars(chart.title)
        for extension, metadata in (("png", {"Title": title}), ("svg", {"Title": title, "Date": None})):
            content = io.BytesIO()
            figure.savefig(content, format=extension, metadata=metadata)
            path = target / f"{chart.name}.{extension}"
            with atomic_replace(path) as temporary:
                temporary.write_bytes(content.getvalue())
            paths.append(path)
    return paths


def draw(chart: Chart) -> Figure:
    """The chart as a matplotlib figure, independent of pyplot."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.legend_handler import HandlerPatch
    from matplotlib.patches import Rectangle

    styles = assign_styles(chart)
    legend = legend_entries(chart, styles)
    # Four panels go two by two; otherwise up to three side by side.
    columns = min(len(chart.panels), 2 if len(chart.panels) == 4 else _MAX_COLUMNS)
    lines = math.ceil(len(chart.panels) / columns)
    width = columns * _PANEL_INCHES[0] + (_LEGEND_INCHES if legend else 0)
    notes = [line for note in chart.notes for line in textwrap.wrap(escape_control_chars(note), int(width * 14))]

    with matplotlib.rc_context(_RC_PARAMS):
        height = lines * _PANEL_INCHES[1] + 0.4 + _NOTE_INCHES * len(notes)
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = list(figure.subplots(lines, columns, squeeze=False).flat)
        for axes, panel in zip(grid, chart.panels, strict=False):
            if panel.picture:
                draw_picture(axes, panel)
            else:
                draw_series(axes, panel, styles)
        for places in chart.shared_scales:
            ends = [grid[place].get_ylim() for place in places]
            for place in places:
                grid[place].set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
        for axes in grid[len(chart.panels) :]:
            axes.remove()

        figure.suptitle(escape_control_chars(chart.title), x=0.01, ha="left", fontsize=12, fontweight="bold")
        if legend:
            handles = [_legend_handle(series, style) for series, style in legend.values()]
            names = [textwrap.fill(escape_control_chars(name), 34) for name in legend]
            squares = {Rectangle: HandlerPatch(patch_func=_square)}
            figure.legend(handles, names, loc="outside right center", handlelength=3, handler_map=squares)
        if notes:
            figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=8.5, color=GREY)
    return figure


def legend_entries(chart: Chart, styles: Mapping[SeriesKey, Style]) -> dict[str, tuple[Series, Style]]:
    """Name -> the series that represents it in the legend, measured series first; empty for a single name.

    A name that several lines share, such as that of an ideal, has no colour in the legend.
    """

    def rank(series: Series) -> tuple[bool, bool, bool]:
        is_calculated = series.dashed or series.kind == "band"
        return is_calculated, series.kind == "cross", series.muted

    by_name: dict[str, Series] = {}
    for series in sorted((series for panel in chart.panels for series in panel.series), key=rank):
        by_name.setdefault(series.name, series)
    if len(by_name) < 2:
        return {}

    names = [name for name, _ in styles]
    return {
        name: (series, replace(styles[series.key], colour=None) if names.count(name) > 1 else styles[series.key])
        for name, series in by_name.items()
    }


def _legend_handle(series: Series, style: Style) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle

    if series.kind == "band":
        return Patch(facecolor=series_colour(series, style), alpha=0.25)
    if series.kind == "bar":
        return Rectangle((0, 0), 1, 1, **bar_options(series, style))
    return Line2D([], [], **line_options(series, style))


def _square(*, width: float, height: float, **_: Any) -> Any:
    """The patch of a bar in the legend."""
    from matplotlib.patches import Rectangle

    return Rectangle(((width - height) / 2, 0), height, height)
