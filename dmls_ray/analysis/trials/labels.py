"""How trials are named by their fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.config.grid import BASELINE
from dmls_ray.records.names import OF_A_FIELD, distinct_names


def describe_configuration(factors: Mapping[str, Any]) -> str:
    """A configuration by the fields that vary: `world_size=2 batch_per_rank=16`; its batch once."""
    texts = []
    for name, value in factors.items():
        is_derived = name == "global_batch" and factors.get("batch_per_rank") is not None
        if value is not None and not is_derived:
            texts.append(f"{name}={value:.10g}" if isinstance(value, float) else f"{name}={value}")
    return " ".join(texts) or "the one configuration"


def describe_changes(trial: Trial, changed: Collection[str]) -> str:
    """What a trial changes of the fields that were changed one at a time: `dropout=0.3`; empty where nothing."""
    specs = trial.workload.specs()
    texts = []
    for name, value in trial.factors.items():
        if name in changed and value != specs[name].default:
            texts.append(f"{name}={value}")
    return " ".join(texts)


def name_of_change(trial: Trial, changed: Collection[str]) -> str:
    """The name of a trial by what it changes: `dropout=0.3`; `baseline` where nothing."""
    return describe_changes(trial, changed) or BASELINE


def factor_cells(factors: Mapping[str, Any], *, other_headers: Collection[str]) -> dict[str, str]:
    """Fields of a configuration as the cells of a trial.

    Args:
        factors: name -> value.
        other_headers: headers of the row's other cells; a field with the name of one gets the prefix `config_`.
    """
    heads = distinct_names(factors, other_headers, OF_A_FIELD)
    return {head: "" if factors[name] is None else str(factors[name]) for name, head in heads.items()}
