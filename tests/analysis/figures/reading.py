"""What the tests of the figures read out of a chart."""

from __future__ import annotations

from dmls_ray.analysis.figures.chart import Chart, Panel, PlotSeries


def names(panel: Panel) -> list[str]:
    return [series.name for series in panel.series]


def series(panel: Panel, name: str) -> PlotSeries:
    """The first series of a name."""
    return next(item for item in panel.series if item.name == name)


def points(panel: Panel, name: str) -> dict[float | str, float | None]:
    return {point.x: point.y for point in series(panel, name).points}


def panels(chart: Chart | None, count: int) -> list[Panel]:
    assert len(chart.panels) == count
    return list(chart.panels)
