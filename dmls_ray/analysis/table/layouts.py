"""The tables of the reports, each one call: by batch, by rank, by backend, by machines, and normal against quantized;
and the published rows next to ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from dmls_ray.analysis.metrics import format_of, label_of, quantity_of
from dmls_ray.analysis.presentation import installed_presentations, presentation_of
from dmls_ray.analysis.published.data import ACCURACY_CAVEAT, PUBLISHED
from dmls_ray.analysis.published.matching import Match
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.formatting import ACCURACY, GENERIC, SECONDS, format_value
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.summary.phrases import factor_cells
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.columns import measure_columns
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.order import positions_of
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RankRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.registry import workload_of


@dataclass(frozen=True)
class RenderedTable:
    """A table as texts, and what its reader must know."""

    frame: pd.DataFrame
    notes: Sequence[str]


def by_batch(results: Results, *, with_published: bool = False) -> RenderedTable:
    """Time, memory and test accuracy by batch and world size, as report B's first table.

    Args:
        results: the runs.
        with_published: whether the published rows stand next to ours.
    """
    return _by(results, ("batch_per_rank", "world_size"), _TIME_MEMORY_ACCURACY, with_published)


def by_backend(results: Results, *, with_published: bool = False) -> RenderedTable:
    """Time, memory and test accuracy by batch and backend, as report B's third table; runs of several ranks alone.

    Args:
        results: the runs.
        with_published: whether the published rows stand next to ours.
    """
    several = results.of([record for record in results.records if record.config["world_size"] > 1])
    if results.records and not several.records:
        return RenderedTable(pd.DataFrame(), ["All runs have one rank, which has no backend."])
    return _by(several, ("batch_per_rank", "backend"), _TIME_MEMORY_ACCURACY, with_published)


def by_machines(results: Results, *, with_published: bool = False) -> RenderedTable:
    """Time, speed-up, communication and test accuracy by machines and ranks on each, as report C's first table.

    Args:
        results: the runs.
        with_published: whether the published rows stand next to ours.
    """
    placed = results.of([_placed(record) for record in results.records])
    factors = ("machines", "ranks_per_machine", "backend")
    measures = ("total_s", "images_per_s", "speed_up", "exposed_comm_ms", "link_round_trip_ms", "link_mbit_per_s",
                "test_accuracy")  # fmt: skip
    return _by(placed, factors, measures, with_published)


def by_quantization(results: Results, *, with_published: bool = False) -> RenderedTable:
    """Time, accuracy, size and latency, normal against quantized, as report C's second table.

    Args:
        results: the runs.
        with_published: whether the published rows stand next to ours.
    """
    measures = ("total_s", "test_accuracy", "int8_test_accuracy", "fp32_checkpoint_bytes", "int8_checkpoint_bytes",
                "fp32_eager_ms_p50", "fp32_compiled_ms_p50", "int8_compiled_ms_p50")  # fmt: skip
    return _by(results, ("world_size", "quantization"), measures, with_published)


def by_rank(results: Results, *, with_published: bool = False) -> RenderedTable:
    """Time, memory and accuracies of each rank, as report B's second table: medians over the repeats; accuracies are
    over the share of the rank. A trial of which no run is ok has one row, with its outcome.

    Args:
        results: the runs.
        with_published: whether the published rows stand next to ours.
    """
    table = make_table(results)
    cells = []
    found = [match(row.records[0]) if with_published else None for row in table.rows]
    has_failed = any(row.outcome != Outcome.OK for row in table.rows)
    for row, published_run in zip(table.rows, found, strict=True):
        ranks: list[int | None] = [*sorted({rank.rank for record in row.counted for rank in record.ranks})]
        for number_of in ranks or [None]:
            same = [rank for record in row.counted for rank in record.ranks if rank.rank == number_of]
            entries = {"rank": "" if number_of is None else str(number_of)}
            entries |= {label_of(name): _median(same, name) for name in _OF_A_RANK}
            entries |= _published_rank(published_run, number_of) if with_published else {}
            entries |= {"n": str(len(same)), "outcome": row.outcome if has_failed else ""}
            cells.append(_factor_cells(row, _heads(table), entries) | entries)
    frame = pd.DataFrame(cells, dtype=object).fillna("")
    notes = _notes_with_published(table, found) if with_published else _notes(table)
    return RenderedTable(_without_empty(frame), notes)


LAYOUTS: dict[str, Callable[..., RenderedTable]] = {
    "batch": by_batch,
    "rank": by_rank,
    "backend": by_backend,
    "machines": by_machines,
    "quantization": by_quantization,
}
"""The tables of training by their names after `--by`."""


def all_layouts() -> dict[str, Callable[..., RenderedTable]]:
    """Return the tables of training and those that workloads add, by name."""
    added = [item.layouts for item in installed_presentations()]
    return {**LAYOUTS, **{name: layout for layouts in added for name, layout in layouts.items()}}


def published_runs(name: str, results: Results) -> Results:
    """Return the published runs of a table: those of the workload that adds it, else these."""
    added = (item.published(name) for item in installed_presentations())
    return next((runs for runs in added if runs is not None), results)


def as_rendered(table: Table) -> RenderedTable:
    """Return a table without its empty columns."""
    return RenderedTable(_without_empty(table.frame()), _notes(table))


def match(record: RunRecord) -> Match | None:
    """Return the published run of the same configuration."""
    return presentation_of(workload_of(record.config)).match(record)


def with_published_rows(table: Table) -> RenderedTable:
    """The table of a sweep with the published rows next to ours, matched by configuration."""
    found = [match(row.records[0]) for row in table.rows]
    return _with_published(table.frame(), table, found)


_TIME_MEMORY_ACCURACY = ("total_s", "peak_mem_mib", "peak_mem_mb", "test_accuracy")
"""Reports give memory in another unit."""

_OF_A_RANK = ("total_s", "peak_mem_mib", "train_accuracy", "test_accuracy")


def _by(results: Results, factors: Sequence[str], measures: Sequence[str], with_published: bool) -> RenderedTable:
    table = make_table(results, factors)
    # Other fields that vary distinguish rows, too.
    heads = list(dict.fromkeys((*factors, *_heads(table))))
    columns = measure_columns(table, measures)
    rows = sorted(table.rows, key=lambda row: positions_of(row, heads))
    table = replace(table, rows=rows)
    cells = []
    for row in rows:
        entries = {column.head: column.text(row) for column in columns}
        cells.append(_factor_cells(row, heads, entries) | entries)
    frame = _without_empty(pd.DataFrame(cells, dtype=object))
    if with_published:
        return _with_published(frame, table, [match(row.records[0]) for row in rows])
    return RenderedTable(frame, _notes(table))


def _with_published(frame: pd.DataFrame, table: Table, found: Sequence[Match | None]) -> RenderedTable:
    if not any(found):
        return RenderedTable(frame, _notes_with_published(table, found))
    entries = frame.assign(
        **{head: [read(item.record) if item else "" for item in found] for head, read in _OF_A_PUBLISHED_RUN.items()},
        **{"published on": [item.hardware if item else "" for item in found]},
        **{"differs in": [item.differs_in if item else "" for item in found]},
    )
    return RenderedTable(_without_empty(entries), _notes_with_published(table, found))


def _notes(table: Table) -> list[str]:
    """The table's, and whose accuracies those are that were published."""
    shown = [record for row in table.rows for record in row.records if record.isolation == PUBLISHED]
    return [*table.notes, *_of_accuracies(shown)]


def _of_accuracies(published: Iterable[RunRecord]) -> list[str]:
    return [ACCURACY_CAVEAT] if any(record.test_accuracy is not None for record in published) else []


def _notes_with_published(table: Table, found: Sequence[Match | None]) -> list[str]:
    """Likewise, of a table with these published runs next to ours."""
    if not any(found):
        return [*_notes(table), "The reports have no run of these configurations."]
    hardware = next((note.about for note in table.typed_notes if note.kind == "measured_on"), "")
    ours = hardware.rstrip(".") or "this machine"
    theirs = ", ".join(dict.fromkeys(item.hardware for item in found if item))
    return [
        *table.notes,
        *_of_accuracies(item.record for item in found if item),
        f"Published figures are of {theirs}, n=1; ours of {ours}. differs in: ours / theirs; what the reports do not "
        "give is compared where ours is not at its default.",
    ]


def _seconds(record: RunRecord) -> str:
    return "" if record.total_s is None else SECONDS(record.total_s)


def _memory(record: RunRecord) -> str:
    return GENERIC(record.measures["peak_mem_mb"]) if "peak_mem_mb" in record.measures else ""


def _tested(record: RunRecord) -> str:
    return "" if record.test_accuracy is None else ACCURACY(record.test_accuracy)


def _pass_ms(record: RunRecord) -> str:
    return GENERIC(record.measures["pass_ms"]) if "pass_ms" in record.measures else ""


_OF_A_PUBLISHED_RUN: dict[str, Callable[[RunRecord], str]] = {
    "published s/run": _seconds,
    "published peak MB": _memory,
    "published test acc.": _tested,
    "published ms": _pass_ms,
}


def _published_rank(found: Match | None, number_of: int | None) -> dict[str, str]:
    if found is None:
        return {"published test acc.": "", "published on": "", "differs in": ""}
    ranks = {rank.rank: rank for rank in found.record.ranks}
    tested = ranks[number_of].test_accuracy if number_of in ranks else None
    return {
        "published test acc.": "" if tested is None else ACCURACY(tested),
        "published on": found.hardware,
        "differs in": found.differs_in,
    }


def _median(ranks: Sequence[RankRecord], name: str) -> str:
    values = [value for rank in ranks if (value := getattr(rank, name)) is not None]
    return format_value(estimate(values, quantity_of(name)), format_of(name)) if values else ""


def _placed(record: RunRecord) -> RunRecord:
    """The same with how many machines its ranks were on, how many were on each, and what backend=auto was."""
    entries = dict(record.config)
    if not entries.get("machines"):
        entries["machines"] = len({rank.machine for rank in record.ranks}) or 1
        entries["ranks_per_machine"] = entries["world_size"] // entries["machines"]
    if entries.get("backend") == "auto" and record.outcome is Outcome.OK:
        # One rank has none, and an older record does not have it.
        entries["backend"] = record.backend or (None if entries["world_size"] == 1 else "auto")
    return record.replace(config=entries)


def _heads(table: Table) -> list[str]:
    """The fields that distinguish rows; the batch once."""
    return [name for name in table.varied if name != "global_batch"]


def _factor_cells(row: Row, names: Sequence[str], other_headers: Collection[str]) -> dict[str, str]:
    return factor_cells({name: row.factors.get(name) for name in names}, other_headers=other_headers)


def _without_empty(frame: pd.DataFrame) -> pd.DataFrame:
    """Without columns that say nothing of any row."""
    return frame[[head for head in frame.columns if (frame[head] != "").any()]] if len(frame) else frame
