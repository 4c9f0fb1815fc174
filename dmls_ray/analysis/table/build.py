"""The table a person would have drawn: a row a trial, and only the columns that vary or answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.analysis.metrics import is_time, quantity_of, resolution_of, table_metrics
from dmls_ray.analysis.presentation import presentation_of_rows
from dmls_ray.analysis.results import Results, factors_of, field_names
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.columns import columns_of
from dmls_ray.analysis.table.comparisons import Comparisons
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.notes import notes_of
from dmls_ray.analysis.table.row import Row
from dmls_ray.analysis.table.stage import Stage
from dmls_ray.records.model import RunRecord
from dmls_ray.util.gc import gc_disabled
from dmls_ray.workloads.registry import registered_metrics


@gc_disabled()
def make_table(
    results: Results, varied: Sequence[str] | None = None, *, best_by: tuple[str, bool] | None = None
) -> Table:
    """The table of a sweep, or of a search.

    Args:
        results: the runs.
        varied: fields to show as columns; without it, those in which the runs differ.
        best_by: a metric, and whether it is to be small, for the best trial first, and those that were stopped after
            those that trained to the end; without it, by the factors.
    """
    by_trial: dict[str, list[RunRecord]] = {}
    for record in results.records:
        by_trial.setdefault(record.trial_id, []).append(record)
    factors = [factors_of(records[0]) for records in by_trial.values()]
    names = factor_names(factors, varied)
    rows = [_row(values, records, names) for values, records in zip(factors, by_trial.values(), strict=True)]
    rows.sort(key=lambda row: row.position(names))
    if best_by is not None:
        metric, minimizes = best_by
        rows.sort(key=lambda row: (row.value_of(metric) or 0.0) * (1 if minimizes else -1))
        rows.sort(key=lambda row: (row.value_of(metric) is None, row.is_stopped))
    stage = None if results.until is None else Stage.of(results.records, results.until).without_those_left_out()
    presentation = presentation_of_rows(rows)
    judged = len(presentation.judged(rows))
    comparisons = Comparisons(rows, looks="none" if stage is None else stage.looks, measures=judged)
    for row in rows:
        row.comparisons = comparisons
    fixed_batch_field = _fixed_batch_field(factors, varied or ())
    table = Table(
        varied=names, rows=rows, fixed_batch_field=fixed_batch_field, presentation=presentation, best_by=best_by,
        stage=stage,
    )  # fmt: skip
    presentation.add_speed_up(rows, fixed_batch_field)
    if best_by is None:
        presentation.order(rows, names)
    table.typed_notes = list(notes_of(results, table))
    table.columns = columns_of(table)
    return table


def factor_names(factors: Sequence[Mapping[str, Any]], varied: Sequence[str] | None = None) -> tuple[str, ...]:
    """The fields that distinguish trials: those that were varied, and others in which they differ."""
    fields = field_names(factors)
    names = {*(varied or ()), *(name for name in fields if _differs(name, factors))}
    # A table that shows one batch shows the other.
    if names & {"batch_per_rank", "global_batch", "world_size", "accum_steps"} and "global_batch" in fields:
        names |= {"batch_per_rank", "global_batch"}
    if "machines" not in names:
        names.discard("ranks_per_machine")  # it is world_size then
    return tuple(name for name in fields if name in names)


def _differs(name: str, factors: Sequence[Mapping[str, Any]]) -> bool:
    first = factors[0].get(name)
    # Most are the same object or equal; 1, 1.0 and True differ only as texts.
    values = (item.get(name) for item in factors)
    return any(value is not first and (value != first or repr(value) != repr(first)) for value in values)


def _row(factors: Mapping[str, Any], records: list[RunRecord], names: Sequence[str]) -> Row:
    row = Row(records[0].trial_id, {name: factors.get(name) for name in names}, records)
    reported = dict.fromkeys(field_names(record.metrics for record in row.counted))
    without_entry = [name for name in reported if name not in registered_metrics()]
    for name in (*table_metrics(), *without_entry):
        if name not in reported:
            continue
        records = row.timed if is_time(name) else row.counted
        values = [record.metrics[name] for record in records if name in record.metrics]
        if values:
            resolution = resolution_of(name, row.counted)
            quantity = quantity_of(name, values)
            row.estimates[name] = estimate(values, quantity, resolution=resolution, is_once=row.is_once(name))
    return row


def _fixed_batch_field(factors: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> str:
    """Which batch stays from one world size, and from one accum_steps, to the next: global_batch (strong scaling) or
    batch_per_rank (weak).
    """
    by_ranks: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
    for values in factors:
        if "accum_steps" in values and values.get("global_batch") is not None:
            per_rank, together = by_ranks.setdefault((values["world_size"], values["accum_steps"]), (set(), set()))
            per_rank.add(values["batch_per_rank"])
            together.add(values["global_batch"])
    same_per_rank, same_together = (
        len({frozenset(sizes[index]) for sizes in by_ranks.values()}) == 1 for index in range(2)
    )
    is_strong = "global_batch" in varied or (same_together and not same_per_rank)
    return "global_batch" if is_strong else "batch_per_rank"
