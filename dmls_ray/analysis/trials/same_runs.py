"""Trials whose repeats repeat the same run, since their training function sets its seed itself."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.stats.intervals import are_same
from dmls_ray.records.model import RunRecord
from dmls_ray.records.training_metrics import LEARNED, is_loss
from dmls_ray.workloads.registry import is_compared, registered_metrics


def same_results(records: Sequence[RunRecord]) -> list[str]:
    """The losses of runs with different seeds, if they are the same in each, in every epoch; else none.

    Of functions that report no loss, those of their own metrics that are the same. Whole numbers alone prove nothing,
    since a number of parameters is equal in all runs, nor do accuracies, since few samples have few of them.
    """
    if len({record.seed for record in records}) < 2:
        return []
    is_same: dict[str, bool] = {}
    for name in records[0].metrics:
        runs = [_values(record, name) for record in records]
        is_learned = name in LEARNED or is_compared(name)
        if is_learned and not all(value.is_integer() for value in runs[0]):
            is_as_long = len(set(map(len, runs))) == 1
            is_same[name] = is_as_long and all(map(are_same, zip(*runs, strict=True)))
    losses = [name for name in is_same if is_loss(name)]
    if losses:
        return losses if all(map(is_same.get, losses)) else []
    proving = set(is_same) - set(registered_metrics())
    return [name for name in is_same if is_same[name] and name in proving and not name.endswith(("acc", "accuracy"))]


def _values(record: RunRecord, name: str) -> list[float]:
    """A metric of a whole run, and of each epoch that has it."""
    metrics = [record.metrics, *(epoch.metrics for epoch in record.epochs)]
    return [float(item[name]) for item in metrics if name in item]
