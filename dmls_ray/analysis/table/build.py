"""The table a person would have drawn: a row a trial, and only the columns that vary or answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from dmls_ray.analysis.metrics import TABLE_METRICS, is_time, quantity_of
from dmls_ray.analysis.presentation import presentation_of_rows
from dmls_ray.analysis.results import Results, factors_of, field_names
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.columns import columns_of
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.notes import notes_of
from dmls_ray.analysis.table.order import positions_of
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord
from dmls_ray.util.gc import gc_disabled

_measured = attrgetter(*TABLE_METRICS)


@gc_disabled()
def make_table(
    results: Results, varied: Sequence[str] | None = None, *, best_by: tuple[str, bool] | None = None
) -> Table:
    """The table of a sweep, or of a search.

    Args:
        results: the runs.
        varied: fields to show as columns; without it, those in which the runs differ.
        best_by: a metric, and whether it is to be small, for the best trial first; without it, by the factors.
    """
    by_trial: dict[str, list[RunRecord]] = {}
    for record in results.records:
        by_trial.setdefault(record.trial_id, []).append(record)
    factors = [factors_of(records[0]) for records in by_trial.values()]
    names = factor_names(factors, varied)
    rows = [_row(values, records, names) for values, records in zip(factors, by_trial.values(), strict=True)]
    rows.sort(key=lambda row: positions_of(row, names))
    if best_by is not None:
        metric, minimizes = best_by
        rows.sort(key=lambda row: (row.median_of(metric) or 0.0) * (1 if minimizes else -1))
        rows.sort(key=lambda row: row.median_of(metric) is None)
    fixed_batch_field = _held_batch(factors, varied or ())
    presentation = presentation_of_rows(rows)
    table = Table(varied=names, rows=rows, fixed_batch_field=fixed_batch_field, presentation=presentation)
    presentation.add_speed_up(rows, fixed_batch_field)
    if best_by is None:
        presentation.order(rows, names)
    table.typed_notes = notes_of(results, table)
    table.columns = columns_of(table)
    return table


def factor_names(factors: Sequence[Mapping[str, Any]], varied: Sequence[str] | None = None) -> tuple[str, ...]:
    """The fields that distinguish trials: those that were varied, and others in which they differ."""
    known = field_names(factors)
    names = {*(varied or ()), *(name for name in known if _differs(name, factors))}
    # A table that shows one batch shows the other.
    if names & {"batch_per_rank", "global_batch", "world_size", "accum_steps"} and "global_batch" in known:
        names |= {"batch_per_rank", "global_batch"}
    if "machines" not in names:
        names.discard("ranks_per_machine")  # it is world_size then
    return tuple(name for name in known if name in names)


def _differs(name: str, factors: Sequence[Mapping[str, Any]]) -> bool:
    first = factors[0].get(name)
    # Most are the same object or equal; 1, 1.0 and True differ only as texts.
    return any(
        (value := each.get(name)) is not first and (value != first or repr(value) != repr(first)) for each in factors
    )


def _row(factors: Mapping[str, Any], records: list[RunRecord], names: Sequence[str]) -> Row:
    row = Row(records[0].trial_id, {name: factors.get(name) for name in names}, records)
    ok = row.counted
    timed = [record.mode == "bench" for record in ok]
    for (name, metric), values in zip(TABLE_METRICS.items(), zip(*map(_measured, ok), strict=True), strict=False):
        known = [value for value, counts in zip(values, timed, strict=True)
                 if value is not None and (counts or not metric.is_time)]  # fmt: skip
        if known:
            row.estimates[name] = estimate(known, metric.kind)
    for name in field_names(record.measures for record in ok):
        anywhere = not is_time(name)
        reported = [record.measures.get(name) for record, counts in zip(ok, timed, strict=True) if counts or anywhere]
        numbers = [value for value in reported if isinstance(value, int | float)]
        if numbers:
            row.custom_metrics[name] = estimate(numbers, quantity_of(name))
    return row


def _held_batch(factors: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> str:
    """Which batch stays from one world size, and from one accum_steps, to the next: global_batch (strong scaling) or
    batch_per_rank (weak).
    """
    sizes: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
    for values in factors:
        if "accum_steps" in values and values.get("global_batch") is not None:
            per_rank, together = sizes.setdefault((values["world_size"], values["accum_steps"]), (set(), set()))
            per_rank.add(values["batch_per_rank"])
            together.add(values["global_batch"])
    same_per_rank = len({frozenset(item) for item, _ in sizes.values()}) == 1
    same_together = len({frozenset(item) for _, item in sizes.values()}) == 1
    if "global_batch" in varied:
        return "global_batch"
    return "global_batch" if same_together and not same_per_rank else "batch_per_rank"
