"""The values of a run that follow from those of its ranks and epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from statistics import fmean
from typing import Any, TypeVar

from dmls_ray.records.agreement import independence_of
from dmls_ray.records.epoch_and_rank import EpochRecord, RankRecord
from dmls_ray.records.metric import Metric
from dmls_ray.records.model import RUN_FIELDS, RunRecord
from dmls_ray.records.returned import RUN_FACTS
from dmls_ray.records.run_events import RankResult
from dmls_ray.records.training_metrics import BY_NAME, LEARNED, RETURNABLE

_COMBINE: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "max": max,
    "min": min,
    "sum": sum,
    "mean": fmean,
    "spread": lambda values: max(values) - min(values),
    "rank0": lambda values: values[0],
}
_METRIC_FIELDS = BY_NAME.keys() & {*RUN_FIELDS}
"""The metrics that have a field of the record; the others are in its `measures`."""


def take_results(record: RunRecord, results: Sequence[RankResult], metrics: Sequence[Metric] = ()) -> None:
    """Fill in what the ranks measured.

    A metric of scope `rank` is combined over the ranks as its entry says; the others are already over all ranks. A
    metric without a field of the record is kept in its `measures`.

    Args:
        record: the run.
        results: of the ranks that returned, in their order; a run that was interrupted has fewer.
        metrics: the metrics of the workload; those of training are taken as well.
    """
    record.ranks = [
        _of_known(RankRecord, {"rank": item.rank, "machine": item.machine, "device": item.device, **item.values})
        for item in results
    ]
    if not results:
        return

    if len(results) == record.config.get("world_size"):
        record.independent_ranks = independence_of(record.ranks)
    run = results[0].run
    all_metrics = {**BY_NAME, **{metric.name: metric for metric in metrics}}
    fields_of_run = {name for name in _METRIC_FIELDS if all_metrics[name].scope == "run"} | {*RUN_FACTS}
    for name in fields_of_run & run.keys():
        setattr(record, name, run[name])
    take_epochs(record, [_of_known(EpochRecord, item) for item in run.get("epochs", ())])
    _take_train_evaluation(record)
    for metric in all_metrics.values():
        if metric.scope == "rank":
            combined = _combined(metric, results)
            if metric.name in _METRIC_FIELDS:
                setattr(record, metric.name, combined)
            elif combined is not None:
                record.measures[metric.name] = combined
    # A number without a field is kept, whether or not it is registered.
    others = run.keys() - fields_of_run - {"epochs", "returned"}
    record.measures |= {name: run[name] for name in sorted(others)}
    if "returned" in run:
        _take_returned(record, run["returned"])


def _combined(metric: Metric, results: Sequence[RankResult]) -> Any:
    """The value of the run; None if no rank has one."""
    if metric.part_of:
        wholes = [item.values for item in results if item.values.get(metric.part_of) is not None]
        return max(wholes, key=lambda values: values[metric.part_of]).get(metric.name) if wholes else None
    values = [value for item in results if (value := item.values.get(metric.of or metric.name)) is not None]
    return _COMBINE[metric.across_ranks](values) if values else None


def take_epochs(record: RunRecord, epochs: list[EpochRecord]) -> None:
    """Fill in the epochs and what follows from them."""
    record.epochs = epochs
    if not epochs:
        return
    record.train_s = _sum_of_known(item.train_s for item in epochs)
    record.warmup_s = _sum_of_known(item.warmup_s for item in epochs)
    record.eval_s = _sum_of_known(item.eval_s for item in epochs)
    images = _sum_of_known(item.images for item in epochs)
    # A rate over all epochs is the ratio of the sums, not a mean of rates.
    record.images_per_s = images / record.train_s if images and record.train_s else None
    if record.images_per_s and record.train_samples:
        record.epoch_s = record.train_samples / record.images_per_s
    kept = next((item for item in epochs if item.epoch == record.best_epoch), epochs[-1])
    record.measures = {**kept.measures, **record.measures}
    for name in LEARNED:
        setattr(record, name, getattr(kept, name))
    if kept.train_loss is not None and kept.test_loss is not None:
        record.loss_gap = kept.test_loss - kept.train_loss
    if kept.train_accuracy is not None and kept.test_accuracy is not None:
        record.accuracy_gap = kept.train_accuracy - kept.test_accuracy
    _take_overfitting(record)


def _take_returned(record: RunRecord, returned: Mapping[str, Any]) -> None:
    """Fill in what a user-defined training function returned."""
    for name, value in returned.items():
        if name in RETURNABLE:
            setattr(record, name, value)
        elif name == "picture":
            record.picture = value or ""
        else:
            record.measures[name] = value


def _take_train_evaluation(record: RunRecord) -> None:
    """Fill in what follows from the evaluation on training samples."""
    if record.train_eval_accuracy is not None:
        record.train_accuracy = record.train_eval_accuracy
        if record.test_accuracy is not None:
            record.accuracy_gap = record.train_accuracy - record.test_accuracy
    if record.train_eval_loss is not None and record.test_loss is not None:
        record.loss_gap = record.test_loss - record.train_eval_loss


def _take_overfitting(record: RunRecord) -> None:
    """Fill in the epoch after the least test loss, if test loss ended higher and train loss lower than there."""
    losses = [
        (item.epoch, item.train_loss, item.test_loss)
        for item in record.epochs
        if item.train_loss is not None and item.test_loss is not None
    ]
    if not losses:
        return
    best_epoch, train_loss, test_loss = min(losses, key=lambda item: item[2])
    _, last_train_loss, last_test_loss = losses[-1]
    if test_loss < last_test_loss < math.inf and last_train_loss < train_loss:
        record.overfit_epoch = best_epoch + 1


def _sum_of_known(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is: unknown is not zero."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


Record = TypeVar("Record", EpochRecord, RankRecord)


def _of_known(cls: type[Record], values: Mapping[str, Any]) -> Record:
    """A record of those values whose names are its fields."""
    return cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})
