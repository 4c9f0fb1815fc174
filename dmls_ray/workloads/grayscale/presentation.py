"""How the results of turning images grey are read: by implementation, against the Python loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.presentation import Presentation
from dmls_ray.analysis.published.data import PUBLISHED
from dmls_ray.analysis.published.matching import Match
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.formatting import GENERIC, RATIO, format_interval
from dmls_ray.analysis.stats.intervals import Comparison, bonferroni_level
from dmls_ray.analysis.summary.generic import summarize_metrics
from dmls_ray.analysis.summary.phrases import join_names
from dmls_ray.analysis.table.columns import ending_columns, factor_columns, metric_column, speed_up_column
from dmls_ray.analysis.table.grouping import context_phrase, count_values, group_by_other_factors
from dmls_ray.analysis.table.layouts import RenderedTable
from dmls_ray.analysis.table.model import Column, Note, Table
from dmls_ray.analysis.table.order import positions_of
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord
from dmls_ray.workloads.grayscale.config import IMPLEMENTATION_FIELDS, RECORDED_NAME, TIMES_THE_CACHE, is_complete
from dmls_ray.workloads.grayscale.metrics import GRAYSCALE_METRICS
from dmls_ray.workloads.grayscale.presentation_figure import chart
from dmls_ray.workloads.grayscale.presentation_published import (
    LAYOUT,
    by_implementation,
    match_images,
    published_images,
)

_PLACES = {"cpu": "the processor", "cuda": "the GPU"}
_ONE_THREAD = ("python_loops", "numpy", "pillow")
_TOLD = ("pass_ms", "gb_per_s", "of_copy")
_DOUBTS: dict[str, tuple[str | None, ...]] = {
    "indistinguishable from it:": ("indistinguishable", "slower"),
    "too few repeats to distinguish it from": ("unknown",),
    "not compared, for they ran elsewhere or at other times:": (None,),
}
"""Why the one of least time is not called the fastest, by what comparing it with others came to."""


class GrayscalePresentation(Presentation):
    """Rows from the slowest to the fastest, each against the Python loops over the same images."""

    figures: ClassVar[Mapping[str, Callable[[Table], Chart | None]]] = {"implementations": chart}
    layouts: ClassVar[Mapping[str, Callable[..., RenderedTable]]] = {LAYOUT: by_implementation}
    duration_set_by = "images are turned grey for as long as --timed-s says"
    scales_world_size = False

    def fits(self, rows: Sequence[Row]) -> bool:
        return all(is_complete(row.counted[0].config) for row in rows if row.counted)

    def add_speed_up(self, rows: Sequence[Row], fixed_batch_field: str) -> None:
        for group in group_by_other_factors(rows, IMPLEMENTATION_FIELDS):
            baseline = next((row for row in group if row.factors.get("implementation") == "python_loops"), None)
            for row in group:
                if baseline is not None and row is not baseline:
                    row.speed_up = row.speed_against(baseline)

    def order(self, rows: list[Row], names: Sequence[str]) -> None:
        rows.sort(key=lambda row: -_ms(row))
        others = [name for name in names if name not in IMPLEMENTATION_FIELDS]
        rows.sort(key=lambda row: positions_of(row, others))

    def columns(self, table: Table) -> list[Column]:
        answer, *others = (metric.name for metric in GRAYSCALE_METRICS)
        return [
            *factor_columns(table),
            metric_column(answer, interval=True, answers=True),
            *speed_up_column(table),
            *(metric_column(name, interval=name == "of_copy") for name in others if name in table.custom_metric_names),
            *ending_columns(),
        ]

    def notes(self, rows: Sequence[Row]) -> list[Note]:
        return _notes(rows)

    def summary(self, table: Table, axis: str) -> str:
        return _summary(table, axis)

    def scope(self, factors: Sequence[Mapping[str, Any]]) -> str:
        return f"another function than {RECORDED_NAME}"

    def match(self, record: RunRecord) -> Match | None:
        return match_images(record)

    def published(self, layout: str) -> Results | None:
        return published_images() if layout == LAYOUT else None


def _summary(table: Table, axis: str) -> str:
    """Which implementation is fastest on the processor and on the GPU, by how much, and whether the pictures agree; or
    what another axis does to the time of a pass.

    Args:
        table: the sweep's table.
        axis: the field that the sweep asks about.
    """
    rows = [row for row in table.rows if row.median_of("pass_ms") is not None]
    if not rows:
        return f"No run ended ok, so nothing can be said of {axis}."
    if axis != "implementation" or count_values(rows, axis) < 2:
        return summarize_metrics(table, axis, [name for name in _TOLD if name in table.custom_metric_names])
    texts = []
    for group in group_by_other_factors(rows, IMPLEMENTATION_FIELDS):
        parts = [_fastest(sorted(on, key=_ms)) for on in _by_device(group) if on]
        texts.append(f"{context_phrase(group, *IMPLEMENTATION_FIELDS)}{'; '.join(parts)}")
    apart = [value for row in rows if (known := row.estimate("levels_apart")) for value in known.values]
    counts = sorted({len(row.counted) for row in rows})
    of = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    sentence = "; ".join(texts)
    agree = f"; no grey level is more than {max(apart):.0f} from the float64 reference's" if apart else ""
    return f"{sentence[:1].upper()}{sentence[1:]} (n={of}){agree}."


def _by_device(group: Sequence[Row]) -> list[list[Row]]:
    return [[row for row in group if row.counted[0].config["device"] == device] for device in _PLACES]


def _ms(row: Row) -> float:
    return row.median_of("pass_ms") or 0.0


def _fastest(rows: Sequence[Row]) -> str:
    """The fastest of some, which come in the order of their times, against the loops and against the next.

    It is called the fastest only if it is distinguishable from each of the others.
    """
    best, *others = rows
    config = best.counted[0].config
    size = config["image_size"]
    of = f"of {config['images']:,} images of {size}x{size}"
    time = f"{format_interval(best.estimate('pass_ms'), GENERIC)} ms a pass {of}"
    on = f"on {_PLACES[config['device']]} "
    if not others:
        return f"{on}{_name(best)} takes {time}{_over_loops(best)}"
    # It is picked for being the best, out of so many pairs.
    level = bonferroni_level(len(rows) * (len(rows) - 1) // 2)
    against = [(other, best.speed_against(other, level=level)) for other in others]
    following, ahead = against[0]
    if ahead and all(than and than.verdict == "faster" for _, than in against):
        than = f"{_times(ahead)} as fast as {_name(following)}, the next"
        over = "" if _name(following) == "python_loops" else _over_loops(best)
        return f"{on}{_name(best)} is the fastest of {len(rows)}: {time}{over}, {than}"
    doubts = [
        (why, [other for other, than in against if (than.verdict if than else None) in verdicts])
        for why, verdicts in _DOUBTS.items()
    ]
    texts = [f"{why} {join_names([_timed(row) for row in doubted])}" for why, doubted in doubts if doubted]
    return f"{on}{_name(best)} took the least time of {len(rows)}: {time}{_over_loops(best)}; {'; '.join(texts)}"


def _timed(row: Row) -> str:
    return f"{_name(row)} ({format_interval(row.estimate('pass_ms'), GENERIC)} ms)"


def _over_loops(row: Row) -> str:
    return f", {_times(row.speed_up)} as fast as python_loops" if row.speed_up else ""


def _times(ahead: Comparison) -> str:
    return f"{format_interval(ahead.ratio, RATIO, null=1)} times"


def _name(row: Row) -> str:
    return str(row.counted[0].config["implementation"])


def _notes(rows: Sequence[Row]) -> list[Note]:
    """What was timed, and what its times can be compared with."""
    known = [
        row
        for row in rows
        if row.counted and is_complete(row.counted[0].config) and row.median_of("pass_ms") is not None
    ]
    ours = [row for row in known if row.counted[0].isolation != PUBLISHED]
    notes: list[Note] = []
    if ours:
        allocating = ", ".join(dict.fromkeys(_name(row) for row in ours if row.counted[0].measures.get("own_output")))
        besides = f" (in each pass by {allocating})" if allocating else ""
        notes.append(
            Note(
                "method",
                f"ms: a pass over all images, uint8 in and out, the output allocated once{besides}. GB/s: the bytes "
                "that it cannot but read and write.",
            )
        )
    threads = {row.counted[0].config.get("threads_per_rank") for row in ours}
    if len(threads) == 1:
        alone = dict.fromkeys(_name(row) for row in ours if _name(row) in _ONE_THREAD)
        whatever = f"; {', '.join(alone)} {'uses' if len(alone) == 1 else 'use'} one thread at any" if alone else ""
        notes.append(Note("method", f"threads_per_rank is {threads.pop()}{whatever}."))
    for row in ours:
        timed, images = row.median_of("timed_images"), row.counted[0].config["images"]
        if timed is not None and timed < images:
            notes.append(
                Note(
                    "scaled",
                    f"{_name(row)} went over {timed:.0f} of {images:,} images, and its time is scaled to all; --full "
                    "goes over all.",
                )
            )
    if known and any(row.speed_up for row in rows):
        notes.append(Note("baseline", "Speed-up is against python_loops."))
    if any(row.median_of("of_copy") is not None for row in ours):
        notes.append(
            Note(
                "method",
                "of a copy: against the bytes a second of a copy that moves as many, timed in turn with the passes; a "
                "copy writes half of them and a pass a quarter, so more than 1 is possible.",
            )
        )
    bounds = (Note("method", text) for row in ours if (text := _without_bound(row)))
    return list(dict.fromkeys([*notes, *bounds]))


def _without_bound(row: Row) -> str:
    """Why a time is not compared with the bandwidth of memory; empty if it is, or if it need not be."""
    if row.median_of("of_copy") is not None or row.counted[0].measures.get("own_output"):
        return ""
    images, on = row.counted[0].config["images"], _PLACES[row.counted[0].config["device"]]
    size, cache = row.median_of("set_mib"), row.median_of("cache_mib")
    if cache is None or not math.isfinite(cache):
        return f"The last-level cache of {on} is not known, so no time is compared with its memory's bandwidth."
    if not size or size >= TIMES_THE_CACHE * cache:
        return ""  # one of which a part was timed
    enough = images * TIMES_THE_CACHE * cache / size
    if not math.isfinite(enough):
        return ""  # no cache is so large, and no set so small
    return (
        f"{images:,} images are {GENERIC(size)} MiB read and written, and the last-level cache of {on} has "
        f"{GENERIC(cache)}: memory's bandwidth bounds nothing there. From --images "
        f"{math.ceil(enough)} on it is measured."
    )
