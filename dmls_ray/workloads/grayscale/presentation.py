"""How the results of turning images grey are read: by implementation, against the Python loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel
from dmls_ray.analysis.figures.series import limit_items, measured_series
from dmls_ray.analysis.presentation import Presentation
from dmls_ray.analysis.published.data import PUBLISHED
from dmls_ray.analysis.published.matching import Match
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.stats.formatting import GENERIC, RATIO, format_interval, format_value
from dmls_ray.analysis.stats.intervals import verdict_of
from dmls_ray.analysis.summary.answer import Answer, Finding
from dmls_ray.analysis.summary.axis_answer import answer_along
from dmls_ray.analysis.summary.measures import SPEED, Measure
from dmls_ray.analysis.summary.phrases import as_sentence, context_phrase, join_names
from dmls_ray.analysis.table.axis_groups import count_values, group_by_other_factors
from dmls_ray.analysis.table.columns import ending_columns, factor_columns, metric_column, speed_up_column
from dmls_ray.analysis.table.layouts import RenderedTable
from dmls_ray.analysis.table.model import Column, Note, Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord
from dmls_ray.workloads.grayscale.config import IMPLEMENTATION_FIELDS, RECORDED_NAME, TIMES_THE_CACHE, is_complete
from dmls_ray.workloads.grayscale.presentation_published import (
    LAYOUT,
    by_implementation,
    match_images,
    published_images,
)
from dmls_ray.workloads.grayscale.workload import GRAYSCALE_METRICS

_PLACES = {"cpu": "the processor", "cuda": "the GPU"}
_ONE_THREAD = ("python_loops", "numpy", "pillow")
_PASS = (
    "ms: a pass over all images, uint8 in and out, the output allocated once{}. GB/s: the bytes that it cannot but "
    "read and write."
)
_OF_COPY = (
    "of a copy: against the bytes a second of a copy that moves as many, timed in turn with the passes; a copy writes "
    "half of them and a pass a quarter, so more than 1 is possible."
)
_DOUBTS: dict[str, tuple[str | None, ...]] = {
    "not distinguished from it:": ("not distinguished", "slower"),
    "too few repeats to distinguish it from": ("unknown",),
    "not compared, for they ran elsewhere or at other times:": (None,),
}
"""Why the implementation of least time is not called the fastest -> verdicts of its comparisons with others."""


def chart(table: Table) -> Chart | None:
    """The figure: bars by implementation, a panel for each set of images; None if no images were turned grey.

    The last panel has some images in colour, and in grey by the fastest implementation.
    """
    rows = [row for row in table.rows if row.value_of("pass_ms") is not None]
    if not rows:
        return None
    groups, notes = limit_items(group_by_other_factors(rows, IMPLEMENTATION_FIELDS), "sets of images", most=3)
    panels = [
        _bars(group, context_phrase(group, *IMPLEMENTATION_FIELDS).removeprefix("at ").rstrip(", ")) for group in groups
    ]
    fastest = min(groups[0], key=_ms)
    pictures = [record.picture for record in fastest.counted if record.picture]
    if pictures:
        title = f"In colour, and grey by {_name(fastest)}"
        panels.append(Panel(title=title, picture=pictures[0]))
    return Chart(
        name="implementations", title="Turning images grey: time by implementation", panels=panels,
        notes=(*notes, *(note.text for note in table.typed_notes if note.kind == "scaled")),
    )  # fmt: skip


def _bars(rows: Sequence[Row], title: str) -> Panel:
    series = []
    for device, place in _PLACES.items():
        points = [(_name(row), row, row.by_block("pass_ms")) for row in _on_device(rows, device)]
        series += [replace(line, kind="bar") for line in measured_series(f"on {place}", points)]
    x = Axis("implementation", categories=[_name(row) for row in rows])
    return Panel(x=x, y=Axis(_label(rows), log=True), series=series, title=title)


def _label(rows: Sequence[Row]) -> str:
    sets = {f"{_config(row)['images']:,} images" for row in rows}
    return f"a pass over {sets.pop() if len(sets) == 1 else 'the images'} (ms)"


class GrayscalePresentation(Presentation):
    """Rows from the slowest to the fastest, each against the Python loops over the same images."""

    figures: ClassVar[Mapping[str, Callable[[Table], Chart | None]]] = {"implementations": chart}
    layouts: ClassVar[Mapping[str, Callable[..., RenderedTable]]] = {LAYOUT: by_implementation}
    duration_set_by = "images are turned grey for as long as --timed-s says"
    scales_world_size = False

    def fits(self, rows: Sequence[Row]) -> bool:
        return all(is_complete(_config(row)) for row in rows if row.counted)

    def add_speed_up(self, rows: Sequence[Row], fixed_batch_field: str) -> None:
        for group in group_by_other_factors(rows, IMPLEMENTATION_FIELDS):
            baseline = next((row for row in group if row.factors.get("implementation") == "python_loops"), None)
            for row in group:
                if baseline is not None and row is not baseline:
                    row.speed_up = row.speed_against(baseline)

    def order(self, rows: list[Row], names: Sequence[str]) -> None:
        rows.sort(key=lambda row: -_ms(row))
        others = [name for name in names if name not in IMPLEMENTATION_FIELDS]
        rows.sort(key=lambda row: row.position(others))

    def columns(self, table: Table) -> list[Column]:
        answer, *others = (metric.name for metric in GRAYSCALE_METRICS)
        return [
            *factor_columns(table),
            metric_column(answer, interval=True, answers=True),
            *speed_up_column(table),
            *(metric_column(name, interval=name == "of_copy") for name in others if table.has(name)),
            *ending_columns(),
        ]

    def notes(self, rows: Sequence[Row]) -> list[Note]:
        complete = [row for row in rows if row.counted and is_complete(_config(row))]
        measured = [row for row in complete if row.value_of("pass_ms") is not None]
        ours = [row for row in measured if row.counted[0].isolation != PUBLISHED]
        notes: list[Note] = []
        if ours:
            names = dict.fromkeys(_name(row) for row in ours if row.counted[0].metrics.get("own_output"))
            except_by = f" (in each pass by {', '.join(names)})" if names else ""
            notes.append(Note("method", _PASS.format(except_by)))

        threads = {_config(row).get("threads_per_rank") for row in ours}
        if len(threads) == 1:
            names = dict.fromkeys(_name(row) for row in ours if _name(row) in _ONE_THREAD)
            verb = "uses" if len(names) == 1 else "use"
            except_by = f"; {', '.join(names)} {verb} one thread at any" if names else ""
            notes.append(Note("method", f"threads_per_rank is {threads.pop()}{except_by}."))

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
        bounds = (Note("method", text) for row in ours if (text := _without_bound(row)))
        return list(dict.fromkeys([*notes, *bounds]))

    def measures(self, rows: Sequence[Row]) -> list[Measure]:
        return [SPEED] if any(row.rates() for row in rows) else []

    def answer(self, table: Table, axis: str) -> Answer:
        """The fastest implementation on the processor and on the GPU, how much faster, and whether the pictures agree.

        For another axis, what it does to the speed.
        """
        rows = [row for row in table.rows if row.value_of("pass_ms") is not None]
        if not rows or axis != "implementation" or count_values(rows, axis) < 2:
            return answer_along(table, axis)
        group = group_by_other_factors(rows, IMPLEMENTATION_FIELDS)[0]
        ranked = [found for device in _PLACES if (found := sorted(_on_device(group, device), key=_ms))]
        place = context_phrase(group, *IMPLEMENTATION_FIELDS) if len(rows) > len(group) else ""
        headline = as_sentence(f"{place}{'; '.join(map(_fastest, ranked))}")
        doubts = [Finding("in doubt", text) for trials in ranked if (text := _doubts(trials))]
        levels = [estimate for row in rows if (estimate := row.estimate("levels_apart"))]
        apart = max((value for estimate in levels for value in estimate.values), default=None)
        agreement = f"no grey level is more than {apart:.0f} from the float64 reference's" if apart is not None else ""
        more = [*doubts, *([Finding("agreement", agreement)] if agreement else [])]
        return Answer(headline, answer_along(table, axis, more).findings)

    def scope(self, factors: Sequence[Mapping[str, Any]]) -> str:
        return f"another function than {RECORDED_NAME}"

    def match(self, record: RunRecord) -> Match | None:
        return match_images(record)

    def published(self, layout: str) -> Results | None:
        return published_images() if layout == LAYOUT else None


def _config(row: Row) -> Mapping[str, Any]:
    return row.counted[0].config


def _name(row: Row) -> str:
    return str(_config(row)["implementation"])


def _ms(row: Row) -> float:
    return row.value_of("pass_ms") or 0.0


def _on_device(rows: Sequence[Row], device: str) -> list[Row]:
    return [row for row in rows if _config(row)["device"] == device]


def _fastest(ranked: Sequence[Row]) -> str:
    """Which implementation is the fastest on a device, compared with the Python loops and with the next one.

    It is called the fastest only if it is distinguishable from each of the others.

    Args:
        ranked: trials in the order of their times.
    """
    best, *others = ranked
    config = _config(best)
    time = f"{_interval(best)} for {config['images']:,} images of {config['image_size']}x{config['image_size']}"
    on = f"on {_PLACES[config['device']]}"
    over_loops = f", {_times(best.speed_up)} as fast as python_loops" if best.speed_up else ""
    if not others:
        return f"{_name(best)} {on} takes {time}{over_loops}"
    is_the_fastest = set(_verdicts(ranked)) == {"faster"}
    subject = f"{_name(best)} {'is the fastest' if is_the_fastest else 'took the least time'} of {len(ranked)} {on}"
    return f"{subject}: {time}{over_loops}"


def _doubts(ranked: Sequence[Row]) -> str:
    """Why the implementation of least time is not called the fastest; empty if it is."""
    best, *others = ranked
    texts = []
    for reason, doubtful in _DOUBTS.items():
        rows = [row for row, verdict in zip(others, _verdicts(ranked), strict=True) if verdict in doubtful]
        if rows:
            texts.append(f"{reason} {join_names([f'{_name(row)} ({_against(best, row)})' for row in rows])}")
    return f"{_name(best)}: {'; '.join(texts)}" if texts else ""


def _against(best: Row, row: Row) -> str:
    """How much faster the implementation of least time is than another one; its own time, where they do not compare."""
    ahead = best.speed_against(row)
    return _interval(row) if ahead is None else SPEED.effect(ahead)


def _verdicts(ranked: Sequence[Row]) -> list[str | None]:
    """How the implementation of least time compares with each of the others."""
    comparisons = [ranked[0].speed_against(row) for row in ranked[1:]]
    return [verdict_of(ratio, 1, "faster", "slower") if ratio else None for ratio in comparisons]


def _interval(row: Row) -> str:
    return f"{format_interval(row.estimate('pass_ms'), GENERIC)} ms"


def _times(ahead: Contrast) -> str:
    return f"{format_value(ahead, RATIO, null=1)}x"


def _without_bound(row: Row) -> str:
    """Why a time is not compared with the bandwidth of memory; empty if it is, or if it need not be."""
    if row.value_of("of_copy") is not None or row.counted[0].metrics.get("own_output"):
        return ""
    images, place = _config(row)["images"], _PLACES[_config(row)["device"]]
    size, cache = row.value_of("set_mib"), row.value_of("cache_mib")
    if cache is None or not math.isfinite(cache):
        return f"The last-level cache of {place} is not known, so no time is compared with its memory's bandwidth."
    if not size or size >= TIMES_THE_CACHE * cache:
        return ""  # large enough; a part of the images was timed
    enough = images * TIMES_THE_CACHE * cache / size
    if not math.isfinite(enough):
        return ""  # the record has impossible sizes
    return (
        f"{images:,} images are {GENERIC(size)} MiB read and written, and the last-level cache of {place} has "
        f"{GENERIC(cache)}: memory's bandwidth bounds nothing there. From --images "
        f"{math.ceil(enough)} on it is measured."
    )
