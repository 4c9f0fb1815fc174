"""What implementations that turn images grey take for a pass, and what they make of the images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel
from dmls_ray.analysis.figures.series import limit_items, measured_series
from dmls_ray.analysis.table.grouping import context_phrase, group_by_other_factors
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.workloads.grayscale.config import IMPLEMENTATION_FIELDS

_DEVICES = {"cpu": "on the processor", "cuda": "on the GPU"}


def chart(table: Table) -> Chart | None:
    """The figure: bars by implementation, a panel for each set of images, and the pictures that the fastest one made of
    some; None where no images were turned grey.
    """
    rows = [row for row in table.rows if row.median_of("pass_ms") is not None]
    if not rows:
        return None
    groups, notes = limit_items(group_by_other_factors(rows, IMPLEMENTATION_FIELDS), "sets of images", most=3)
    panels = [
        _bars(group, context_phrase(group, *IMPLEMENTATION_FIELDS).removeprefix("at ").rstrip(", ")) for group in groups
    ]
    fastest = min(groups[0], key=_ms)
    pictures = [record.picture for record in fastest.counted if record.picture]
    if pictures:
        title = f"In colour, and grey by {fastest.counted[0].config['implementation']}"
        panels.append(Panel(title=title, picture=pictures[0]))
    return Chart(
        name="implementations", title="Turning images grey: time by implementation", panels=panels,
        notes=(*notes, *(note.text for note in table.typed_notes if note.kind == "scaled")),
    )  # fmt: skip


def _bars(rows: Sequence[Row], title: str) -> Panel:
    names = [str(row.counted[0].config["implementation"]) for row in rows]
    series = []
    for device, words in _DEVICES.items():
        on = [(name, row) for name, row in zip(names, rows, strict=True) if row.counted[0].config["device"] == device]
        points = measured_series(words, [(name, row, row.by_block("pass_ms")) for name, row in on])
        series += [replace(line, kind="bar") for line in points]
    return Panel(x=Axis("implementation", categories=names), y=Axis(_label(rows), log=True), series=series, title=title)


def _label(rows: Sequence[Row]) -> str:
    sets = {f"{row.counted[0].config['images']:,} images" for row in rows}
    return f"a pass over {sets.pop() if len(sets) == 1 else 'the images'} (ms)"


def _ms(row: Row) -> float:
    return row.median_of("pass_ms") or 0.0
