"""What the tests of the figures read out of a chart."""

from __future__ import annotations

from dmls_ray.analysis.figures.chart import Chart, Panel, Series


def names(panel: Panel) -> list[str]:
    return [series.name for series in panel.series]


def series(panel: Panel, name: str) -> Series:
    """The first series of a name."""
    return next(item for item in panel.series if item.name == name)


def points(panel: Panel, name: str) -> dict[float | str, float | None]:
    found = series(panel, name)
    return dict(zip(found.x, found.y, strict=True))


def one_panel(chart: Chart | None) -> Panel:
    assert chart is not None
    (panel,) = chart.panels
    return panel


def panels(chart: Chart | None, count: int) -> list[Panel]:
    assert chart is not None
    assert len(chart.panels) == count
    return list(chart.panels)
