"""The trials of a sweep, made of the records of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.analysis.metrics import is_time, quantity_of, resolution_of, table_metrics
from dmls_ray.analysis.results import field_names
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.records.model import RunRecord
from dmls_ray.workloads.registry import registered_metrics


def trials_of(factors: Sequence[Mapping[str, Any]], runs: Sequence[list[RunRecord]], names: Sequence[str]) -> list[Row]:
    """The trials in the order of their fields.

    Args:
        factors: the configuration of each.
        runs: the runs of each.
        names: the fields that distinguish them.
    """
    rows = [_row(values, records, names) for values, records in zip(factors, runs, strict=True)]
    return sorted(rows, key=lambda row: row.position(names))


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


def fixed_batch_field(factors: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> str:
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
