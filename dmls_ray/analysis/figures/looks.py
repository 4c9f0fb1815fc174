"""How each series of a chart looks: by colour, and by mark or dashes besides, for the colour-blind and for paper.

Colours are those of Okabe & Ito, "Color Universal Design" (2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dmls_ray.analysis.figures.chart import Chart, Panel, Series

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "h")
"""As matplotlib names them."""
DASHES = ((5.0, 2.0), (1.0, 1.5), (6.0, 2.0, 1.0, 2.0), (3.0, 1.5, 1.0, 1.5, 1.0, 1.5))
"""Lengths of a dash and of the gap after it, in widths of the line."""
GREY, BLACK = "#666666", "#000000"


@dataclass(frozen=True)
class Look:
    """How a series is drawn."""

    colour: str
    mark: str = ""
    dashes: tuple[float, ...] = ()
    hollow: bool = False
    """Whether the mark is an outline: of the second series of a pair, say."""
    ring: bool = False
    """Whether it is drawn around other series' marks: it marks a place on a curve."""
    depth: int = 0
    """How many series lie below: the more, the finer it is drawn, so that what coincides can be told."""


def looks_of(chart: Chart) -> dict[tuple[str, str], Look]:
    """The look of each series, by its name and `same_as`; the same in all panels."""
    looks: dict[tuple[str, str], Look] = {}
    by_name: dict[str, Look] = {}
    dashes: dict[str, tuple[float, ...]] = {}
    own = 0
    for panel, series in series_of(chart):
        key = (series.name, series.same_as)
        if key in looks:
            continue
        like = by_name.get(series.same_as)
        if series.dashed:
            # One pattern a law, whichever line it belongs to.
            pattern = dashes.setdefault(series.name, DASHES[len(dashes) % len(DASHES)])
            look = Look(like.colour if like else GREY, dashes=pattern)
        elif series.kind == "cross":
            look = Look(like.colour, "x", depth=like.depth) if like else Look(BLACK, "x")
        elif series.muted:
            look = Look(GREY, "o", hollow=True, depth=len(MARKS))
        elif series.kind == "points" and not series.connected and any(other.connected for other in panel.series):
            look = Look(BLACK, "o", hollow=True, ring=True)
        elif like is not None:
            look = replace(like, hollow=True)
        else:
            # After as many series as there are colours the marks begin with another one.
            mark = MARKS[(own + own // len(COLOURS)) % len(MARKS)]
            look = Look(COLOURS[own % len(COLOURS)], mark, depth=own % len(MARKS))
            own += 1
        looks[key] = look
        by_name.setdefault(series.name, look)
    return looks


def legend_of(chart: Chart) -> dict[str, tuple[Series, Look]]:
    """Name -> the series that stands for it in the legend, what was measured first; empty where one needs no name.

    What several lines have of one name, an ideal say, stands there without a colour.
    """
    looks = looks_of(chart)
    everything = [series for _, series in series_of(chart)]
    named: dict[str, Series] = {}
    for series in sorted(everything, key=lambda item: (_is_worked_out(item), item.kind == "cross", item.muted)):
        named.setdefault(series.name, series)
    if len(named) < 2:
        return {}
    shared = {name for name, _ in looks if sum(name == other for other, _ in looks) > 1}
    neutral = {name: BLACK if series.kind == "cross" else GREY for name, series in named.items() if name in shared}
    entries = {}
    for name, series in named.items():
        look = looks[series.name, series.same_as]
        entries[name] = (series, replace(look, colour=neutral.get(name, look.colour)))
    return entries


def _is_worked_out(series: Series) -> bool:
    return series.dashed or series.kind == "band"


def series_of(chart: Chart) -> Iterator[tuple[Panel, Series]]:
    """All series, each with its panel."""
    for panel in chart.panels:
        for series in panel.series:
            yield panel, series
