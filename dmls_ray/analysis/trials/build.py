"""A trial made of the records of its runs, and the fields that distinguish the trials of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.analysis.metrics import quantity_of, resolution_of, table_metrics
from dmls_ray.analysis.results import field_names
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord
from dmls_ray.workloads.registry import registered_metrics


def make_trial(factors: Mapping[str, Any], records: list[RunRecord], names: Sequence[str]) -> Trial:
    """A trial with its metrics over the repeats.

    Args:
        factors: its configuration.
        records: its runs.
        names: the fields that distinguish the trials of its sweep.
    """
    trial = Trial(records[0].trial_id, {name: factors.get(name) for name in names}, records)
    reported = field_names(record.metrics for record in trial.counted)
    without_entry = [name for name in reported if name not in registered_metrics()]
    for name in (*table_metrics(), *without_entry):
        values = list(trial.by_block(name).values())
        if values:
            quantity = quantity_of(name, values)
            resolution = resolution_of(name, trial.counted)
            trial.estimates[name] = estimate(values, quantity, resolution=resolution, is_once=trial.is_once(name))
    return trial


def factor_names(factors: Sequence[Mapping[str, Any]], varied: Sequence[str] | None = None) -> tuple[str, ...]:
    """The fields that distinguish trials: those that were varied, and others in which they differ."""
    fields = field_names(factors)
    names = set(varied or ())
    for name in fields:
        if len({repr(values.get(name)) for values in factors}) > 1:
            names.add(name)
    # A table that shows one batch shows the other.
    if names & {"batch_per_rank", "global_batch", "world_size", "accum_steps"} and "global_batch" in fields:
        names |= {"batch_per_rank", "global_batch"}
    if "machines" not in names:
        names.discard("ranks_per_machine")  # it is world_size then
    return tuple(name for name in fields if name in names)


def fixed_batch_field(factors: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> str:
    """Which batch stays from one world size, and from one accum_steps, to the next: global_batch (strong scaling) or
    batch_per_rank (weak).
    """
    per_rank: dict[tuple[int, int], set[int]] = {}
    together: dict[tuple[int, int], set[int]] = {}
    for values in factors:
        if "accum_steps" in values and values.get("global_batch") is not None:
            ranks = (values["world_size"], values["accum_steps"])
            per_rank.setdefault(ranks, set()).add(values["batch_per_rank"])
            together.setdefault(ranks, set()).add(values["global_batch"])
    same_per_rank = len(set(map(frozenset, per_rank.values()))) == 1
    same_together = len(set(map(frozenset, together.values()))) == 1
    is_strong = "global_batch" in varied or (same_together and not same_per_rank)
    return "global_batch" if is_strong else "batch_per_rank"
