"""Trials whose repeats repeat the same run, since their training function sets its seed itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmls_ray.records.model import RunRecord
from dmls_ray.records.training_metrics import LEARNED, is_loss
from dmls_ray.workloads.registry import registered_metrics

_LOSSES = tuple(filter(is_loss, LEARNED))
_ACCURACY = ("acc", "accuracy")


def same_results(records: Sequence[RunRecord]) -> list[str]:
    """The losses that runs with different seeds have in common, bit for bit and in every epoch.

    Of functions that report no loss, such metrics of their own. Whole numbers are left out, since a number of
    parameters is equal in all runs, and accuracies, since few samples have few of them.
    """
    if len({record.seed for record in records}) < 2:
        return []
    runs = [_results(record) for record in records]
    losses = [name for name in runs[0] if is_loss(name)]
    own = [name for name in runs[0] if name not in registered_metrics() and not name.endswith(_ACCURACY)]
    return [name for name in losses or own if all(run.get(name) == runs[0][name] for run in runs)]


def _results(record: RunRecord) -> dict[str, list[Any]]:
    """The results of a run that are no whole numbers: of the whole run, and of each epoch."""
    parts = [_reported(record), *map(_reported, record.epochs)]
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: [part.get(name) for part in parts] for name in names}


def _reported(part: Any) -> dict[str, float]:
    """The losses and own metrics of a run or an epoch, without whole numbers."""
    values = part.measures | {name: getattr(part, name) for name in _LOSSES}
    return {name: value for name, value in values.items() if isinstance(value, float) and not value.is_integer()}
