"""The tables of the reports, each one call: by batch, by rank, by backend, by machines, and normal against quantized;
and the published rows next to ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from dmls_ray.analysis.memory import EXACT, MEMORY, MEMORY_KINDS
from dmls_ray.analysis.metrics import format_of, label_of, quantity_of
from dmls_ray.analysis.published.data import ACCURACY_CAVEAT, EPOCH_CAVEAT, MEMORY_CAVEAT, PUBLISHED
from dmls_ray.analysis.published.matching import Match
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.formatting import ACCURACY, GENERIC, SECONDS, NumberFormat, format_value
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.columns import measure_columns
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.presentation import installed_presentations, presentation_of
from dmls_ray.analysis.trials.labels import factor_cells
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.records.epoch_and_rank import RankRecord
from dmls_ray.records.model import RunRecord
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
    several = results.of([record for record in results.records if record.config.get("world_size", 1) > 1])
    if results.records and not several.records:
        return RenderedTable(pd.DataFrame(), ["All runs have one rank, which has no backend."])
    return _by(several, ("batch_per_rank", "backend"), _TIME_MEMORY_ACCURACY, with_published)


def by_memory(results: Results, *, with_published: bool = False) -> RenderedTable:
    """Memory of the rank that needs most: of its tensors by kind, of the GPU, of the data set on it, of the process.

    Args:
        results: the runs.
        with_published: whether the published rows stand next to ours.
    """
    measures = (*EXACT, "device_mem_mib", "host_mem_mib", "peak_mem_mb")
    return _by(results, ("batch_per_rank", "world_size"), measures, with_published)


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
    """Time, memory and accuracies of each rank, as report B's second table: means over the repeats; accuracies are
    over the share of the rank. A trial of which no run is ok has one row, with its outcome.

    Args:
        results: the runs.
        with_published: whether the published rows stand next to ours.
    """
    table = make_table(results)
    heads = _heads(table)
    matches = [match(row.records[0]) if with_published else None for row in table.rows]
    has_failed = any(row.outcome != Outcome.OK for row in table.rows)
    cells = []
    for row, matched in zip(table.rows, matches, strict=True):
        ranks = [rank for record in row.counted for rank in record.ranks]
        numbers: list[int | None] = [*sorted({rank.rank for rank in ranks})]
        for number in numbers or [None]:
            same = [rank for rank in ranks if rank.rank == number]
            entries = {"rank": "" if number is None else str(number)}
            entries |= {label_of(name): _mean(same, name) for name in _OF_A_RANK}
            if with_published:
                published_ranks = [rank for rank in matched.record.ranks if rank.rank == number] if matched else []
                entries |= {"published test acc.": _mean(published_ranks, "test_accuracy"), **_of_match(matched)}
            entries |= {"n": str(len(same)), "outcome": row.outcome if has_failed else ""}
            cells.append(_with_factors(row, heads, entries))
    frame = _without_empty(pd.DataFrame(cells, dtype=object).fillna(""))
    return RenderedTable(frame, _notes(table, matches if with_published else None))


LAYOUTS: dict[str, Callable[..., RenderedTable]] = {
    "batch": by_batch,
    "rank": by_rank,
    "backend": by_backend,
    "memory": by_memory,
    "machines": by_machines,
    "quantization": by_quantization,
}
"""The tables of training by their names after `--by`."""


def all_layouts() -> dict[str, Callable[..., RenderedTable]]:
    """Return the tables of training and those that workloads add, by name."""
    return LAYOUTS | {name: layout for item in installed_presentations() for name, layout in item.layouts.items()}


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
    return _with_published(table.frame(), table)


_TIME_MEMORY_ACCURACY = ("total_s", *MEMORY, "peak_mem_mb", "test_accuracy")
"""Reports give memory in another unit."""

_OF_A_RANK = ("total_s", *MEMORY, *MEMORY_KINDS, "train_accuracy", "test_accuracy")

_OF_A_PUBLISHED_RUN = {
    "published s/run": ("total_s", SECONDS),
    "published s/epoch": ("epoch_s", SECONDS),
    "published peak MB": ("peak_mem_mb", GENERIC),
    "published test acc.": ("test_accuracy", ACCURACY),
    "published ms": ("pass_ms", GENERIC),
}
"""Column -> metric of a published run, and its format."""

_CAVEATS = {"published s/epoch": EPOCH_CAVEAT, "published peak MB": MEMORY_CAVEAT}
"""Column -> how it compares with ours."""


def _by(results: Results, factors: Sequence[str], measures: Sequence[str], with_published: bool) -> RenderedTable:
    table = make_table(results, factors)
    # Other fields that vary distinguish rows, too.
    heads = list(dict.fromkeys((*factors, *_heads(table))))
    if with_published:
        measures = list(dict.fromkeys((measures[0], "epoch_s", *measures)))  # runs may differ in epochs
    columns = measure_columns(table, measures)
    table = replace(table, rows=sorted(table.rows, key=lambda row: row.position(heads)))
    cells = [_with_factors(row, heads, {column.head: column.text(row) for column in columns}) for row in table.rows]
    frame = _without_empty(pd.DataFrame(cells, dtype=object))
    return _with_published(frame, table) if with_published else RenderedTable(frame, _notes(table))


def _with_published(frame: pd.DataFrame, table: Table) -> RenderedTable:
    matches = [match(row.records[0]) for row in table.rows]
    if any(matches):
        entries = [
            {head: _metric_text(matched, *metric) for head, metric in _OF_A_PUBLISHED_RUN.items()} | _of_match(matched)
            for matched in matches
        ]
        frame = _without_empty(frame.join(pd.DataFrame(entries, index=frame.index)))
    caveats = [text for head, text in _CAVEATS.items() if head in frame]
    return RenderedTable(frame, _notes(table, matches, caveats))


def _notes(table: Table, matches: Sequence[Match | None] | None = None, caveats: Sequence[str] = ()) -> list[str]:
    """The notes of a table, and whose accuracies the published ones are.

    Args:
        table: the table.
        matches: the published runs next to its rows; None for a table without them.
        caveats: how its published columns compare with ours.
    """
    matched = [item for item in matches or () if item is not None]
    of_rows = [record for row in table.rows for record in row.records if record.isolation == PUBLISHED]
    published = [item.record for item in matched] or of_rows
    notes = [*table.notes, *caveats]
    if any("test_accuracy" in record.metrics for record in published):
        notes.append(ACCURACY_CAVEAT)
    if matched:
        hardware = next((note.about for note in table.typed_notes if note.kind == "measured_on"), "")
        ours = hardware.rstrip(".") or "this machine"
        reported = ", ".join(dict.fromkeys(item.hardware for item in matched))
        notes.append(
            f"Published figures are of {reported}, n=1; ours of {ours}. differs in: ours / theirs; what the reports do "
            "not give is compared where ours is not at its default."
        )
    elif matches is not None:
        notes.append("The reports have no run of these configurations.")
    return notes


def _metric_text(matched: Match | None, name: str, form: NumberFormat) -> str:
    if matched is None:
        return ""
    record = matched.record
    value = _epoch_s(record) if name == "epoch_s" else record.metrics.get(name)
    return "" if value is None else form(value)


def _epoch_s(record: RunRecord) -> float | None:
    """Seconds of an epoch of a published run, tests included; without printed ones, from those of the run."""
    metrics = record.metrics
    if "epoch_s" not in metrics and "total_s" in metrics and record.config.get("epochs"):
        return metrics["total_s"] / int(record.config["epochs"])
    return metrics.get("epoch_s")


def _of_match(matched: Match | None) -> dict[str, str]:
    return {
        "published on": matched.hardware if matched else "",
        "differs in": matched.differs_in if matched else "",
    }


def _mean(ranks: Sequence[RankRecord], name: str) -> str:
    values = [rank.metrics[name] for rank in ranks if name in rank.metrics]
    return format_value(estimate(values, quantity_of(name)), format_of(name)) if values else ""


def _placed(record: RunRecord) -> RunRecord:
    """The same with how many machines its ranks were on, how many were on each, and what backend=auto was."""
    entries = dict(record.config)
    if not entries.get("machines"):
        entries["machines"] = len({rank.machine for rank in record.ranks}) or 1
        entries["ranks_per_machine"] = entries["world_size"] // entries["machines"]
    if entries.get("backend") == "auto" and record.outcome is Outcome.OK:
        entries["backend"] = record.backend or None
    return record.replace(config=entries)


def _heads(table: Table) -> list[str]:
    """The fields that distinguish rows; the batch once."""
    return [name for name in table.varied if name != "global_batch"]


def _with_factors(row: Row, names: Sequence[str], cells: dict[str, str]) -> dict[str, str]:
    return factor_cells({name: row.factors.get(name) for name in names}, other_headers=cells) | cells


def _without_empty(frame: pd.DataFrame) -> pd.DataFrame:
    """Without columns that say nothing of any row."""
    return frame[[head for head in frame.columns if (frame[head] != "").any()]] if len(frame) else frame
