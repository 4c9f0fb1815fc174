"""The table a person would have drawn: a row a trial, and only the columns that vary or answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from dmls_ray.analysis.metrics import TABLE_METRICS, is_time, quantity_of
from dmls_ray.analysis.results import OWN, Results, factors_of, field_names
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.columns import columns_of
from dmls_ray.analysis.table.grouping import IMPLEMENTATION_FIELDS, group_by_other_factors
from dmls_ray.analysis.table.notes import notes_of
from dmls_ray.analysis.table.row import Row, Table
from dmls_ray.config.fields import field_specs
from dmls_ray.records.model import RunRecord
from dmls_ray.util.gc import gc_disabled
from dmls_ray.workloads.classification.config import TrialConfig

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
    rows = [_row(each, records, names) for each, records in zip(factors, by_trial.values(), strict=True)]
    rows.sort(key=lambda row: _places(row, names))
    if best_by is not None:
        metric, minimizes = best_by
        rows.sort(key=lambda row: (row.level(metric) or 0.0) * (1 if minimizes else -1))
        rows.sort(key=lambda row: row.level(metric) is None)
    fixed_batch_field = _held_batch(factors, varied or ())
    table = Table(varied=names, rows=rows, fixed_batch_field=fixed_batch_field)
    if not table.is_of_images:
        _add_speed_up(rows, fixed_batch_field)
    else:
        _add_speed_up_over_loops(rows)
        if best_by is None:
            # From the slowest to the fastest, whatever they are called.
            rows.sort(key=lambda row: -(row.level("pass_ms") or 0.0))
            rows.sort(key=lambda row: _places(row, [name for name in names if name not in IMPLEMENTATION_FIELDS]))
    table.notes = notes_of(results, rows, fixed_batch_field)
    table.columns = columns_of(table)
    return table


def factor_names(factors: Sequence[Mapping[str, Any]], varied: Sequence[str] | None = None) -> tuple[str, ...]:
    """The fields that tell trials apart: those that were varied, and those in which they differ all the same."""
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
    # Most are the same object throughout, or equal; what 1, 1.0 and True are to each other only their texts tell.
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
    for each in factors:
        if OWN not in each and each.get("global_batch") is not None:
            per_rank, together = sizes.setdefault((each["world_size"], each["accum_steps"]), (set(), set()))
            per_rank.add(each["batch_per_rank"])
            together.add(each["global_batch"])
    same_per_rank = len({frozenset(item) for item, _ in sizes.values()}) == 1
    same_together = len({frozenset(item) for _, item in sizes.values()}) == 1
    if "global_batch" in varied:
        return "global_batch"
    return "global_batch" if same_together and not same_per_rank else "batch_per_rank"


def _add_speed_up(rows: Sequence[Row], fixed_batch_field: str) -> None:
    """Against world size 1 at the same held batch, all else equal."""
    free = {"world_size", "machines", "ranks_per_machine", "batch_per_rank", "global_batch"} - {fixed_batch_field}

    def rest(row: Row, *besides: str) -> str:
        return repr([value for name, value in row.factors.items() if name not in free and name not in besides])

    bases = {rest(row): row for row in reversed(rows) if row.world_size == 1}
    # One rank talks to nobody: where no backend is told of it, it stands for any.
    lone = [row for row in rows if row.world_size == 1 and not row.factors.get("backend")]
    alone = {rest(row, "backend"): row for row in reversed(lone)}
    for row in rows:
        base = bases.get(rest(row), alone.get(rest(row, "backend"))) if row.world_size > 1 else None
        if base is not None:
            row.speed_up = row.speed_against(base)


def _add_speed_up_over_loops(rows: Sequence[Row]) -> None:
    """Against the Python loops over the same images."""
    for group in group_by_other_factors(rows, IMPLEMENTATION_FIELDS):
        base = next((row for row in group if row.factors.get("implementation") == "python_loops"), None)
        for row in group:
            if base is not None and row is not base:
                row.speed_up = row.speed_against(base)


def _places(row: Row, names: Sequence[str]) -> tuple[tuple[int, Any], ...]:
    return tuple(place_of(name, row.factors[name]) for name in names)


def place_of(name: str, value: Any) -> tuple[int, Any]:
    """Where a value of a field stands in a table: numbers by size; choices in the order of their field, which begins
    with the plain one.
    """
    if value is None:
        return (0, 0)
    spec = field_specs(TrialConfig).get(name)
    choices = spec.choices if spec else ()
    if value in choices:
        return (1, choices.index(value))
    return (1, value) if isinstance(value, int | float) else (2, str(value))
