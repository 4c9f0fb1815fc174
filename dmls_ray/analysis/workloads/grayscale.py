"""How the results of turning images grey are read: by implementation, against the Python loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from dmls_ray.analysis.figures.chart import Chart, Panel, PlotAxis, PlotSeries
from dmls_ray.analysis.figures.series import Line, differing_fields, limit_items, plotted_metric, trial_label
from dmls_ray.analysis.findings.measures import Measure, speed
from dmls_ray.analysis.findings.sweep_trials import Questions
from dmls_ray.analysis.table.layout import Layout
from dmls_ray.analysis.table.model import ENDING, SPEED_UP, Column, Note, Table, factor, metric_column
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.trials.axis import group_by_other_factors
from dmls_ray.analysis.trials.common_metrics import speed_against, speed_metric
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.workloads.grayscale.workload import GRAYSCALE_METRICS, IMPLEMENTATION_FIELDS, RECORDED_NAME

_PLACES = {"cpu": "the processor", "cuda": "the GPU"}
_PASS = "ms: time of a pass over all images, uint8 in and out. GB/s: bytes that a pass must read and write, per second."


def chart(table: Table) -> Chart | None:
    """The figure: bars by implementation, a panel for each set of images; None if no images were turned grey.

    The last panel has some images in colour, and in grey by the fastest implementation.
    """
    rows = [row for row in table.rows if row.value_of("pass_ms") is not None]
    if not rows:
        return None
    groups, notes = limit_items(group_by_other_factors(rows, IMPLEMENTATION_FIELDS), "sets of images", most=3)
    differing = differing_fields(table, [group[0] for group in groups])
    names = [name for name in differing if name not in IMPLEMENTATION_FIELDS]
    panels = [_bars(group, trial_label(group[0], names)) for group in groups]
    fastest = min(groups[0], key=_ms)
    pictures = [record.picture for record in fastest.counted if record.picture]
    if pictures:
        panels.append(Panel(title=f"In colour, and grey by {_name(fastest)}", picture=pictures[0]))
    notes += [note.text for note in table.typed_notes if note.kind == "scaled"]
    title = "Conversion of images to gray: time by implementation"
    return Chart(name="implementations", title=title, panels=panels, notes=notes)


def _bars(rows: Sequence[Trial], title: str) -> Panel:
    plotted = plotted_metric("pass_ms", f"a pass over {_config(rows[0])['images']:,} images (ms)", log=True)
    series: list[PlotSeries] = []
    for device, place in _PLACES.items():
        line = Line(f"on {place}", [row for row in rows if _config(row)["device"] == device], _name)
        series += plotted.series(line, kind="bar")
    x = PlotAxis("implementation", categories=[_name(row) for row in rows])
    return Panel(x=x, y=plotted.y, series=series, title=title)


BY_IMPLEMENTATION = Layout(
    select=lambda records: [record for record in records if record.config.get("train") == RECORDED_NAME],
    nothing="No images were converted; run python sweeps/grayscale.py.",
)
"""Time of converting images to grayscale by implementation."""


class GrayscalePresentation(Presentation):
    """Rows from the slowest to the fastest, each against the Python loops over the same images."""

    figures: ClassVar[Mapping[str, Callable[[Table], Chart | None]]] = {"implementations": chart}
    layouts: ClassVar[Mapping[str, Layout]] = {"implementation": BY_IMPLEMENTATION}

    def add_speed_up(self, rows: Sequence[Trial], fixed_batch_field: str) -> None:
        for group in group_by_other_factors(rows, IMPLEMENTATION_FIELDS):
            baseline = next((row for row in group if row.factors.get("implementation") == "python_loops"), None)
            for row in group:
                if baseline is not None and row is not baseline:
                    row.speed_up = speed_against(row, baseline)

    def order(self, rows: list[Trial], names: Sequence[str]) -> None:
        rows.sort(key=lambda row: -_ms(row))
        others = [name for name in names if name not in IMPLEMENTATION_FIELDS]
        rows.sort(key=lambda row: row.position(others))

    def columns(self, table: Table) -> list[Column]:
        answer, *others = GRAYSCALE_METRICS
        columns = [factor(name) for name in table.varied]
        columns += [metric_column(answer.name, interval=True, answers=True), SPEED_UP]
        for metric in others:
            if table.has(metric.name):
                columns.append(metric_column(metric.name, interval=metric.name == "of_copy"))
        return [*columns, *ENDING]

    def notes(self, rows: Sequence[Trial]) -> list[Note]:
        notes: list[Note] = []
        measured = [row for row in rows if row.value_of("pass_ms") is not None]
        for row in measured:
            timed, images = row.value_of("timed_images"), _config(row)["images"]
            # The published times are of other passes.
            if timed is None:
                continue
            notes.append(Note("method", _PASS))
            if timed < images:
                count = f"{timed:.0f} of {images:,} images"
                text = f"{_name(row)} converted {count}, and its time is scaled to all of them; --full converts all."
                notes.append(Note("scaled", text))
        if measured and any(row.speed_up for row in rows):
            notes.append(Note("baseline", "Speed-up is against python_loops."))
        return list(dict.fromkeys(notes))


class GrayscaleQuestions(Questions):
    """The speed alone."""

    duration_set_by = "images are converted for as long as --timed-s says"

    def measures(self, rows: Sequence[Trial]) -> list[Measure]:
        rated = [row for row in rows if row.rates()]
        return [speed(speed_metric(*rated))] if rated else []


def _config(row: Trial) -> Mapping[str, Any]:
    return row.counted[0].config


def _name(row: Trial) -> str:
    return str(_config(row)["implementation"])


def _ms(row: Trial) -> float:
    return row.value_of("pass_ms") or 0.0
