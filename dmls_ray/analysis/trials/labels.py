"""How trials are named by their fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dmls_ray.analysis.trials.trial import Row
from dmls_ray.config.grid import BASELINE
from dmls_ray.records.names import OF_A_FIELD, distinct_names


def describe_configuration(factors: Mapping[str, Any]) -> str:
    """A configuration by the fields that vary: `world_size=2 batch_per_rank=16`; its batch once."""
    kept = without_derived_batch(factors).items()
    texts = (f"{name}={value:.10g}" if isinstance(value, float) else f"{name}={value}" for name, value in kept)
    return " ".join(texts) or "the one configuration"


def describe_changes(row: Row, changed: Collection[str]) -> str:
    """What a trial changes of the fields that were changed one at a time: `dropout=0.3`; empty where nothing."""
    specs = row.workload.specs()
    made = {name: value for name, value in row.factors.items() if name in changed and value != specs[name].default}
    return " ".join(f"{name}={value}" for name, value in made.items())


def name_of_change(row: Row, changed: Collection[str]) -> str:
    """The name of a trial by what it changes: `dropout=0.3`; `baseline` where nothing."""
    return describe_changes(row, changed) or BASELINE


def without_derived_batch(factors: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are known, and of the two batches one: the other follows."""
    kept = {name: value for name, value in factors.items() if value is not None}
    if "batch_per_rank" in kept:
        kept.pop("global_batch", None)
    return kept


def factor_cells(factors: Mapping[str, Any], *, other_headers: Collection[str]) -> dict[str, str]:
    """Fields of a configuration as the cells of a row.

    Args:
        factors: name -> value.
        other_headers: headers of the row's other cells; a field with the name of one gets the prefix `config_`.
    """
    heads = distinct_names(factors, other_headers, OF_A_FIELD)
    return {head: "" if factors[name] is None else str(factors[name]) for name, head in heads.items()}
