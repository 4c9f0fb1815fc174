"""Figures as files and as SVG, drawn by vl-convert from their specifications."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.figures.style import LIGHT, Styles
from dmls_ray.analysis.figures.vega import vega_lite, with_texts
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.files import atomic_replace
from dmls_ray.util.importing import missing_extra


def drawings(charts: Sequence[Chart]) -> list[str]:
    """Each chart as SVG, with title and notes.

    Raises:
        ConfigError: vl-convert is not installed.
    """
    if reason := missing_extra("vl_convert", "figures", "A figure outside the report"):
        raise ConfigError(reason)
    import vl_convert

    styles = Styles(charts)
    return [vl_convert.vegalite_to_svg(with_texts(chart, vega_lite(chart, styles, LIGHT))) for chart in charts]


def save(charts: Sequence[Chart], folder: str | os.PathLike[str]) -> list[Path]:
    """Write each chart as <name>.png, <name>.svg and <name>.pdf into a folder; make the folder if it is missing.

    Returns:
        The files. They are the same byte for byte with the same version of vl-convert and the same fonts.
    """
    drawn = drawings(charts)
    import vl_convert

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for chart, svg in zip(charts, drawn, strict=True):
        contents = {"png": vl_convert.svg_to_png(svg, scale=2), "svg": svg.encode(), "pdf": vl_convert.svg_to_pdf(svg)}
        for extension, content in contents.items():
            path = target / f"{chart.name}.{extension}"
            with atomic_replace(path) as temporary:
                temporary.write_bytes(content)
            paths.append(path)
    return paths
