"""The values of a run that follow from those of its ranks and epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from dmls_ray.records.model import EpochRecord, RankRecord, RunRecord

METRICS = (
    "train_loss", "train_accuracy", "test_loss", "test_accuracy", "validation_loss", "validation_accuracy"
)  # fmt: skip
"""What an epoch is judged by."""

OF_THE_RUN = (
    "device", "backend", "parameters", "scaled_lr", "train_samples", "test_samples", "validation_samples", "steps",
    "warmup_steps", "skipped_steps", "fast_units", "compile_s", "compile_cache", "resumed_epoch", "stopped_epoch",
    "gradient_noise_scale", "best_epoch", "target_epoch", "target_steps", "target_s", "quantize_s",
    "fp32_test_accuracy", "int8_test_accuracy", "fp32_checkpoint_bytes", "int8_checkpoint_bytes", "fp32_eager_ms_p50",
    "fp32_eager_ms_p95", "fp32_compiled_ms_p50", "fp32_compiled_ms_p95", "int8_compiled_ms_p50",
    "int8_compiled_ms_p95", "link_round_trip_ms", "link_mbit_per_s",
)  # fmt: skip
"""Fields of a run that are equal on all of its ranks."""

OF_THE_RANKS = (
    "setup_s", "checkpoint_s", "inference_s", "total_s", "step_ms_p50", "step_ms_p95", "start_mem_mib", "peak_mem_mib",
    "peak_reserved_mib", "forward_ms", "backward_ms", "comm_ms", "overlap_ms", "exposed_comm_ms",
)  # fmt: skip
"""Fields of a run that are the largest of its ranks'."""


RETURNED = (*METRICS, "images_per_s", "epoch_s", "train_s", "eval_s", "parameters", "train_samples", "test_samples",
            "validation_samples")  # fmt: skip
"""Fields of a run that a training function of the user's own may fill in; what else it returns is a measure of its
own."""

OF_AN_EPOCH = (*METRICS, "train_s", "eval_s", "images_per_s")
"""Fields of an epoch that it may fill in."""


def take_results(record: RunRecord, results: Sequence[Mapping[str, Any]]) -> None:
    """Fill in what the ranks measured.

    Times and memory are those of the rank that took most; rates and metrics are already over all ranks.

    Args:
        results: what each rank's training function returned, in the order of ranks. Only ranks that returned are
            here, so a run that was cut short has fewer.
    """
    record.ranks = [_of_known(RankRecord, item) for item in results]
    if not results:
        return
    first = results[0]
    for name in OF_THE_RUN:
        setattr(record, name, first.get("run", {}).get(name, getattr(record, name)))
    take_epochs(record, [_of_known(EpochRecord, item) for item in first.get("run", {}).get("epochs", ())])
    for name in OF_THE_RANKS:
        values = [value for rank in record.ranks if (value := getattr(rank, name)) is not None]
        setattr(record, name, max(values) if values else None)
    if "returned" in first.get("run", {}):
        _take_returned(record, first["run"]["returned"])


def take_epochs(record: RunRecord, epochs: list[EpochRecord]) -> None:
    """Fill in the epochs and what follows from them."""
    record.epochs = epochs
    if not epochs:
        return
    record.train_s = sum(item.train_s for item in epochs)
    record.warmup_s = sum(item.warmup_s for item in epochs)
    record.eval_s = sum(item.eval_s for item in epochs)
    images = sum(item.images for item in epochs)
    # A rate over all epochs is the ratio of the sums, not a mean of rates.
    record.images_per_s = images / record.train_s if images and record.train_s else None
    if record.images_per_s and record.train_samples:
        record.epoch_s = record.train_samples / record.images_per_s
    kept = epochs[record.best_epoch - 1] if record.best_epoch else epochs[-1]
    record.measures = dict(kept.measures)
    for name in METRICS:
        setattr(record, name, getattr(kept, name))
    if kept.train_loss is not None and kept.test_loss is not None:
        record.loss_gap = kept.test_loss - kept.train_loss
    if kept.train_accuracy is not None and kept.test_accuracy is not None:
        record.accuracy_gap = kept.train_accuracy - kept.test_accuracy
    _take_overfitting(record)


def _take_returned(record: RunRecord, returned: Mapping[str, Any]) -> None:
    """Fill in what a training function of the user's own returned."""
    if not any(epoch.train_s for epoch in record.epochs):
        # It told no times; that is not to say that it took none.
        record.train_s = record.warmup_s = record.eval_s = None
    for name, value in returned.items():
        if name in RETURNED:
            setattr(record, name, value)
        elif name == "picture":
            record.picture = value or ""
        else:
            record.measures[name] = value


def _take_overfitting(record: RunRecord) -> None:
    tested = [item for item in record.epochs if item.test_loss is not None and item.train_loss is not None]
    if not tested:
        return
    least = min(tested, key=lambda item: item.test_loss or 0.0)
    end = tested[-1]
    assert least.train_loss is not None
    assert end.train_loss is not None
    assert least.test_loss is not None
    assert end.test_loss is not None
    rose = least.test_loss < end.test_loss < math.inf
    if rose and end.train_loss < least.train_loss:
        record.overfit_epoch = least.epoch + 1


Record = TypeVar("Record", EpochRecord, RankRecord)


def _of_known(cls: type[Record], values: Mapping[str, Any]) -> Record:
    """A record of the values that it has fields for."""
    return cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})
