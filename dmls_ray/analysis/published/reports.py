"""The runs of the published reports as records, from the CSV files in this folder, and which of them match ours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dmls_ray.analysis.results import Results, factors_of
from dmls_ray.config.fields import FieldSpec
from dmls_ray.records.aggregate import take_epochs
from dmls_ray.records.epoch_and_rank import EpochRecord, RankRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.registry import workload_of

FOLDER = Path(__file__).parent
"""The folder of the published figures."""

PUBLISHED = "published"
"""The isolation of a published record; measured records have `group` or `per_run`."""


class Report(NamedTuple):
    """A published report."""

    dataset: str
    tables: tuple[str, ...]
    """Names of layouts."""
    axes: tuple[str, ...]
    """The fields that it examines."""


REPORTS = {
    "A": Report("cifar10", ("batch", "rank"), ("world_size", "backend")),
    "B": Report("stl10", ("batch", "rank", "backend", "implementation"), ("world_size", "backend")),
    "C": Report("mnist", ("machines", "backend", "quantization"), ("machines", "backend", "quantization")),
}

_SETTINGS: dict[str, dict[str, Any]] = {
    "cifar10": {
        "weight_decay": 5e-4, "shuffle": False, "device": "cuda", "loader": "dataloader", "loader_workers": 2
    },
    "stl10": {"image_size": 128, "device": "cuda", "loader": "dataloader"},
    "mnist": {"weight_decay": 5e-4, "shuffle": False, "device": "cpu", "test_batch_per_rank": 128, "seed": 123},
}  # fmt: skip
"""Settings of all runs of a report, by data set."""

_SAMPLES = {"cifar10": 50_000, "stl10": 5_000, "mnist": 60_000}
"""Training samples of a data set."""

_SUMMED = ("cifar10",)
"""Data sets whose printed losses are sums of batch means divided by the number of samples, so too small by the factor
batch_per_rank.
"""

_DISTURBED_FROM = {"cifar10-convnet-2gpu-gloo-bs256-fp32-10ep": 5}
"""Experiment -> first epoch whose time does not count, since another process used the GPUs according to the report."""

_LEARNED = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")

_MATCHED = ("model", "batch_per_rank", "accum_steps", "world_size", "machines", "backend", "precision", "quantization",
            "batch_norm")  # fmt: skip
"""Fields that must be equal for two runs to match."""

_NO_MATTER = {
    # Which samples come when, and where the ranks run. How samples are loaded matters: a resident data set occupies
    # memory of the device, and saves the time of loading.
    "seed", "data_dir", "launcher", "device", "threads_per_rank", "ranks_per_machine",
    # What is measured besides, and which steps count in a rate; global_batch follows from equal fields.
    "test_batch_per_rank", "target_accuracy", "inference_batch", "warmup_steps", "global_batch",
}  # fmt: skip
"""Fields that change neither what is trained nor how, nor memory. The hardware is reported separately."""

_NOT_REPORTED = "not reported"

CAVEATS = {
    "epoch_s": "Published s/epoch includes tests; a report that prints no times of epochs has s/run divided by its "
    "epochs, so set-up too. Ours is of training steps alone.",
    "peak_mem_mb": "Published peak_mem_mb is what PyTorch allocated on a GPU while a DataLoader brought the batches. "
    "Of ours, device MiB compares with it: it leaves out the data set that the resident loader keeps on the GPU "
    "(data_mib).",
    "test_accuracy": "Published accuracies on cifar10 and stl10 are rank 0's, over its share of the test samples (half "
    "of them with 2 ranks), those on mnist the mean over the ranks; ours are over all test samples.",
}
"""Metric -> how published values of it compare with ours."""


def published(dataset: str | None = None) -> Results:
    """The runs of the reports, one repeat each.

    The epochs of a run are those of rank 0, as in the reports. Memory is in the unit that a report calls MB, as the
    custom metric `peak_mem_mb`. Accuracies are fractions from 0 to 1 (see `CAVEATS`), losses are means over
    samples. `epoch_s` is the median over the undisturbed epochs, or the share of an epoch in the whole run.

    Args:
        dataset: cifar10, stl10 or mnist for the runs of one report; None for all.
    """
    epochs: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows("published_epochs"):
        epochs.setdefault(row["experiment"], []).append(row)
    records = []
    for order, row in enumerate(read_rows("published_runs")):
        if dataset in (None, row["dataset"].lower()):
            records.append(_record(order, row, epochs.get(row["experiment"], [])))
    return Results(FOLDER, records)


def read_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a published CSV file; an empty cell is None."""
    frame = pd.read_csv(FOLDER / f"{name}.csv")
    rows: list[Any] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return rows


def _record(order: int, row: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]) -> RunRecord:
    dataset = row["dataset"].lower()
    ranks = int(row["machines"] * row["ranks_per_machine"])
    regularized = row["regularized"] or ""
    config: dict[str, Any] = {
        "model": row["model"].partition("+")[0],
        "dataset": dataset,
        "world_size": ranks,
        "machines": int(row["machines"]),
        "ranks_per_machine": int(row["ranks_per_machine"]),
        "batch_per_rank": int(row["batch_per_rank"]),
        "accum_steps": 1,
        "backend": row["backend"] if ranks > 1 else None,
        "precision": row["precision"],
        "optimizer": row["optimizer"].lower(),
        "lr": float(row["learning_rate"]),
        "epochs": int(row["epochs"]),
        "quantization": "qat" if row["quantized"] else "off",
        "batch_norm": "on" if "batch norm" in regularized else "off",
        "early_stopping": "off",
        **_SETTINGS[dataset],
    }
    if "early stopping" in regularized:
        config |= {"early_stopping": "test_loss", "patience": 2}
    record = RunRecord(
        run_id=row["experiment"], trial_id=row["experiment"], repeat=0, order=order, order_seed=0, seed=0,
        outcome=Outcome.OK, config=config, isolation=PUBLISHED, backend=config["backend"] or "",
        machine={"host": "", "cpu": row["hardware"].partition(" (")[0], "hardware": row["hardware"], "gpus": []},
        metrics={"train_samples": _SAMPLES[dataset]}, reason=row["note"] or "",
    )  # fmt: skip
    factor = config["batch_per_rank"] if dataset in _SUMMED else 1
    for rank in range(ranks):
        of_rank = [_epoch(item, factor) for item in epochs if item["rank"] == rank]
        last = dict(of_rank[-1].metrics) if of_rank else {}
        record.ranks.append(RankRecord(rank=rank, metrics=last, epochs=of_rank))
    take_epochs(record, record.ranks[0].epochs)
    # What a report prints of a whole run comes before what follows from its epochs.
    printed = {
        "epoch_s": _epoch_s(row, epochs),
        "total_s": row["total_s"],
        "train_accuracy": row["train_accuracy"],
        "test_accuracy": row["test_accuracy"],
        "peak_mem_mb": row["peak_memory_mb"],
    }
    metrics = record.metrics
    for name, value in printed.items():
        metrics.pop(name, None)
        if value is not None:
            metrics[name] = value / 100 if name.endswith("accuracy") else value
    if {"train_accuracy", "test_accuracy"} <= metrics.keys():
        metrics["accuracy_gap"] = metrics["train_accuracy"] - metrics["test_accuracy"]
    return record


def _epoch_s(row: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds of an epoch of rank 0: the median, since the first one includes the set-up."""
    disturbed = _DISTURBED_FROM.get(row["experiment"], math.inf)
    seconds = []
    for item in epochs:
        if item["rank"] == 0 and item["epoch_s"] is not None and item["epoch"] < disturbed:
            seconds.append(item["epoch_s"])
    if seconds:
        return statistics.median(seconds)
    return None if row["total_s"] is None else row["total_s"] / row["epochs"]


def _epoch(row: Mapping[str, Any], factor: int) -> EpochRecord:
    """An epoch with its losses multiplied by a factor, and with fractions in place of percentages."""
    metrics = {}
    for name in _LEARNED:
        if row[name] is not None:
            metrics[name] = row[name] * factor if name.endswith("loss") else row[name] / 100
    return EpochRecord(epoch=int(row["epoch"]), metrics=metrics)


@dataclass(frozen=True)
class Match:
    """A published run of the same configuration, as far as the report states it."""

    record: RunRecord
    differs_in: str
    """Other fields that differ, measured / published; empty if none does."""

    @property
    def hardware(self) -> str:
        """Hardware of the published run."""
        return str(self.record.machine["hardware"])


def match_training(record: RunRecord) -> Match | None:
    """The published run that matches a measured one; None if there is none.

    The model, batch_per_rank, accum_steps, world_size, machines, backend, precision, quantization and batch_norm are
    equal. The data set is equal too, or the measured run read an image folder with as many samples. Of several such
    runs, the one that differs in the fewest other fields: those that the report states, and those of the measured run
    that are not at their default.
    """
    # As the run resolved them: gloo for auto, and the machines that its ranks ran on.
    machines = len({rank.machine for rank in record.ranks}) or 1
    ours = {**factors_of(record), "backend": record.backend or None, "machines": machines}
    specs = workload_of(record.config).specs()
    matches = []
    for theirs in _all():
        config = theirs.config
        is_same_data = ours["dataset"] == config["dataset"] or (
            ours["dataset"] == "image_folder" and record.metrics.get("train_samples") == theirs.metrics["train_samples"]
        )
        if is_same_data and all(ours.get(name) == config.get(name) for name in _MATCHED):
            matches.append((theirs, _differences(ours, config, specs)))
    closest = min(matches, key=lambda item: len(item[1]), default=None)
    return None if closest is None else Match(closest[0], ", ".join(closest[1]))


@cache
def _all() -> Sequence[RunRecord]:
    return published().records


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any], specs: Mapping[str, FieldSpec]) -> list[str]:
    """Fields that differ, as `name measured / published`."""
    # Regularised runs have dropout, of a rate that the report does not state.
    unknown = {"dropout": "of a rate that is not reported"} if theirs["batch_norm"] == "on" else {}
    differences = []
    for name in dict.fromkeys((*theirs, *unknown, *ours)):
        condition = specs[name].setting.counts_with if name in specs else None
        value = ours.get(name)
        if name in _NO_MATTER or (condition is not None and ours.get(condition[0]) not in condition[1]):
            continue
        if name in unknown or (name not in theirs and name in specs and value != specs[name].default):
            differences.append(f"{name} {_format(value)} / {unknown.get(name, _NOT_REPORTED)}")
        elif name in theirs and value != theirs[name]:
            differences.append(f"{name} {_format(value)} / {_format(theirs[name])}")
    return differences


def _format(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
