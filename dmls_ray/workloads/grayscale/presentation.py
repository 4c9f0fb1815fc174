"""How the results of turning images grey are read: by implementation, against the Python loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import limit_items, plotted_metric
from dmls_ray.analysis.findings.effects import Measure, speed
from dmls_ray.analysis.findings.sweep_trials import Questions
from dmls_ray.analysis.published.reports import PUBLISHED, Match
from dmls_ray.analysis.table.layouts import Layout
from dmls_ray.analysis.table.model import ENDING, SPEED_UP, Column, Note, Table, factor_columns, metric_column
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.trials.axis import describe_value, group_by_other_factors
from dmls_ray.analysis.trials.compare import speed_metric
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord
from dmls_ray.workloads.grayscale.config import IMPLEMENTATION_FIELDS, TIMES_THE_CACHE
from dmls_ray.workloads.grayscale.presentation_published import (
    BY_IMPLEMENTATION,
    match_images,
)
from dmls_ray.workloads.grayscale.workload import GRAYSCALE_METRICS

_PLACES = {"cpu": "the processor", "cuda": "the GPU"}
_PASS = "ms: a pass over all images, uint8 in and out. GB/s: the bytes that it cannot but read and write."
_OF_COPY = (
    "of a copy: against the bytes a second of a copy that moves as many, timed in turn with the passes; a copy writes "
    "half of them and a pass a quarter, so more than 1 is possible."
)
_NO_COPY = (
    f"A pass is compared with a copy where the images are {TIMES_THE_CACHE} times as large as the last-level cache: "
    "give more --images."
)


def chart(table: Table) -> Chart | None:
    """The figure: bars by implementation, a panel for each set of images; None if no images were turned grey.

    The last panel has some images in colour, and in grey by the fastest implementation.
    """
    rows = [row for row in table.rows if row.value_of("pass_ms") is not None]
    if not rows:
        return None
    groups, notes = limit_items(group_by_other_factors(rows, IMPLEMENTATION_FIELDS), "sets of images", most=3)
    panels = [_bars(group, _images_of(group, groups)) for group in groups]
    fastest = min(groups[0], key=_ms)
    pictures = [record.picture for record in fastest.counted if record.picture]
    if pictures:
        title = f"In colour, and grey by {_name(fastest)}"
        panels.append(Panel(title=title, picture=pictures[0]))
    return Chart(
        name="implementations", title="Turning images grey: time by implementation", panels=panels,
        notes=(*notes, *(note.text for note in table.typed_notes if note.kind == "scaled")),
    )  # fmt: skip


def _bars(rows: Sequence[Trial], title: str) -> Panel:
    plotted = plotted_metric("pass_ms", f"a pass over {_config(rows[0])['images']:,} images (ms)", log=True)
    series: list[Series] = []
    for device, place in _PLACES.items():
        points = [(_name(row), row) for row in rows if _config(row)["device"] == device]
        series += plotted.series(f"on {place}", points, kind="bar")
    x = Axis("implementation", categories=[_name(row) for row in rows])
    return Panel(x=x, y=plotted.y, series=series, title=title)


def _images_of(group: Sequence[Trial], groups: Sequence[Sequence[Trial]]) -> str:
    """What distinguishes the images of a group from those of others: `images 400`."""
    firsts = [rows[0].factors for rows in groups]
    names = [name for name in firsts[0] if name not in IMPLEMENTATION_FIELDS]
    differing = [name for name in names if len({repr(factors[name]) for factors in firsts}) > 1]
    return ", ".join(describe_value(name, group[0].factors[name]) for name in differing)


class GrayscalePresentation(Presentation):
    """Rows from the slowest to the fastest, each against the Python loops over the same images."""

    figures: ClassVar[Mapping[str, Callable[[Table], Chart | None]]] = {"implementations": chart}
    layouts: ClassVar[Mapping[str, Layout]] = {"implementation": BY_IMPLEMENTATION}

    def add_speed_up(self, rows: Sequence[Trial], fixed_batch_field: str) -> None:
        for group in group_by_other_factors(rows, IMPLEMENTATION_FIELDS):
            baseline = next((row for row in group if row.factors.get("implementation") == "python_loops"), None)
            for row in group:
                if baseline is not None and row is not baseline:
                    row.speed_up = row.speed_against(baseline)

    def order(self, rows: list[Trial], names: Sequence[str]) -> None:
        rows.sort(key=lambda row: -_ms(row))
        others = [name for name in names if name not in IMPLEMENTATION_FIELDS]
        rows.sort(key=lambda row: row.position(others))

    def columns(self, table: Table) -> list[Column]:
        answer, *others = (metric.name for metric in GRAYSCALE_METRICS)
        return [
            *factor_columns(table),
            metric_column(answer, interval=True, answers=True),
            SPEED_UP,
            *(metric_column(name, interval=name == "of_copy") for name in others if table.has(name)),
            *ENDING,
        ]

    def notes(self, rows: Sequence[Trial]) -> list[Note]:
        measured = [row for row in rows if row.value_of("pass_ms") is not None]
        ours = [row for row in measured if row.counted[0].isolation != PUBLISHED]
        notes: list[Note] = []
        if ours:
            notes.append(Note("method", _PASS))
        for row in ours:
            timed, images = row.value_of("timed_images"), _config(row)["images"]
            if timed is not None and timed < images:
                count = f"{timed:.0f} of {images:,} images"
                text = f"{_name(row)} went over {count}, and its time is scaled to all; --full goes over all."
                notes.append(Note("scaled", text))
        if measured and any(row.speed_up for row in rows):
            notes.append(Note("baseline", "Speed-up is against python_loops."))
        if any(row.value_of("of_copy") is not None for row in ours):
            notes.append(Note("method", _OF_COPY))
        elif ours:
            notes.append(Note("method", _NO_COPY))
        estimates = [row.estimates.get("levels_apart") for row in ours]
        apart = [value for estimate in estimates if estimate is not None for value in estimate.values]
        if apart:
            text = f"No grey level is more than {max(apart):.0f} from that of the float64 reference."
            notes.append(Note("method", text))
        return list(dict.fromkeys(notes))

    def match(self, record: RunRecord) -> Match | None:
        return match_images(record)


class GrayscaleQuestions(Questions):
    """The speed alone."""

    duration_set_by = "images are turned grey for as long as --timed-s says"

    def measures(self, rows: Sequence[Trial]) -> list[Measure]:
        rated = [row for row in rows if row.rates()]
        return [speed(speed_metric(*rated))] if rated else []


def _config(row: Trial) -> Mapping[str, Any]:
    return row.counted[0].config


def _name(row: Trial) -> str:
    return str(_config(row)["implementation"])


def _ms(row: Trial) -> float:
    return row.value_of("pass_ms") or 0.0
