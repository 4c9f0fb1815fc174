"""Trials whose repeats repeat the same run, since their training function sets its seed itself."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.stats.intervals import are_same
from dmls_ray.records.model import RunRecord
from dmls_ray.records.training_metrics import LEARNED, is_loss
from dmls_ray.workloads.registry import is_compared, registered_metrics

_ACCURACY = ("acc", "accuracy")


def same_results(records: Sequence[RunRecord]) -> list[str]:
    """The losses of runs with different seeds, if they are the same in each, in every epoch; else none.

    Of functions that report no loss, those of their own metrics that are the same. Whole numbers alone prove nothing,
    since a number of parameters is equal in all runs, nor do accuracies, since few samples have few of them.
    """
    if len({record.seed for record in records}) < 2:
        return []
    runs = [_results(record) for record in records]
    fractions = [name for name, values in runs[0].items() if not all(float(value).is_integer() for value in values)]
    losses = [name for name in fractions if is_loss(name)]
    own = [name for name in fractions if name not in registered_metrics() and not name.endswith(_ACCURACY)]
    same = [name for name in losses or own if _is_same([run.get(name, []) for run in runs])]
    return [] if losses and len(same) < len(losses) else same


def _results(record: RunRecord) -> dict[str, list[float]]:
    """What a run learned and reported: metric -> its value of the whole run, and of each epoch that has one."""
    results: dict[str, list[float]] = {}
    for metrics in [record.metrics, *(epoch.metrics for epoch in record.epochs)]:
        for name, value in metrics.items():
            if name in LEARNED or is_compared(name):
                results.setdefault(name, []).append(value)
    return results


def _is_same(runs: Sequence[Sequence[float]]) -> bool:
    """Whether the values of a metric are the same in all runs."""
    is_as_long = len({len(run) for run in runs}) == 1
    return is_as_long and all(are_same(values) for values in zip(*runs, strict=True))
