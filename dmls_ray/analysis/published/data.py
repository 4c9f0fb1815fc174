"""The runs of the published reports as records, read from the CSV files in this folder."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dmls_ray.analysis.results import Results
from dmls_ray.records.aggregate import take_epochs
from dmls_ray.records.epoch_and_rank import EpochRecord, RankRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome

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

_SUMMED = ("cifar10",)
"""Data sets whose printed losses are sums of batch means divided by the number of samples, so too small by the factor
batch_per_rank.
"""

_DISTURBED_FROM = {"cifar10-convnet-2gpu-gloo-bs256-fp32-10ep": 5}
"""Experiment -> first epoch whose time does not count, since another process used the GPUs according to the report."""

_LEARNED = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")

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
    records = [
        _record(order, row, epochs.get(row["experiment"], [])) for order, row in enumerate(read_rows("published_runs"))
    ]
    return Results(FOLDER, [record for record in records if dataset in (None, record.config["dataset"])])


def read_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a published CSV file; an empty cell is None."""
    frame = pd.read_csv(FOLDER / f"{name}.csv")
    rows: list[Any] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return rows


def _record(order: int, row: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]) -> RunRecord:
    dataset = row["dataset"].lower()
    ranks = int(row["machines"] * row["ranks_per_machine"])
    regularized = row["regularized"] or ""
    config = {
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
        "early_stopping": "test_loss" if "early stopping" in regularized else "off",
        **({"patience": 2} if "early stopping" in regularized else {}),
        **_SETTINGS[dataset],
    }
    record = RunRecord(
        run_id=row["experiment"], trial_id=row["experiment"], repeat=0, order=order, order_seed=0, seed=0,
        outcome=Outcome.OK, config=config, isolation=PUBLISHED, backend=config["backend"] or "",
        machine={"host": "", "cpu": row["hardware"].partition(" (")[0], "hardware": row["hardware"], "gpus": []},
        metrics={"train_samples": {"cifar10": 50_000, "stl10": 5_000, "mnist": 60_000}[dataset]},
    )  # fmt: skip
    factor = config["batch_per_rank"] if dataset in _SUMMED else 1
    by_rank = [[_epoch(item, factor) for item in epochs if item["rank"] == number] for number in range(ranks)]
    take_epochs(record, by_rank[0])
    record.ranks = [_rank(number, of_rank) for number, of_rank in enumerate(by_rank)]
    disturbed = _DISTURBED_FROM.get(row["experiment"], math.inf)
    seconds = [item["epoch_s"] for item in epochs
               if item["rank"] == 0 and item["epoch_s"] is not None and item["epoch"] < disturbed]  # fmt: skip
    # The median, since the first epoch includes the set-up.
    epoch_s = statistics.median(seconds) if seconds else None
    if epoch_s is None and row["total_s"] is not None:
        epoch_s = row["total_s"] / config["epochs"]
    metrics = {
        "epoch_s": epoch_s,
        "total_s": row["total_s"],
        "train_accuracy": _fraction(row["train_accuracy"]),
        "test_accuracy": _fraction(row["test_accuracy"]),
        "peak_mem_mb": row["peak_memory_mb"],
    }
    for name in metrics:
        record.metrics.pop(name, None)
    record.metrics |= {name: value for name, value in metrics.items() if value is not None}
    if metrics["train_accuracy"] is not None and metrics["test_accuracy"] is not None:
        record.metrics["accuracy_gap"] = metrics["train_accuracy"] - metrics["test_accuracy"]
    record.reason = row["note"] or ""
    return record


def _epoch(row: Mapping[str, Any], factor: int) -> EpochRecord:
    """An epoch with its losses multiplied by a factor, and with fractions in place of percentages."""
    reported = {name: row[name] for name in _LEARNED if row[name] is not None}
    values = {name: value * factor if name.endswith("loss") else value / 100 for name, value in reported.items()}
    return EpochRecord(epoch=int(row["epoch"]), metrics=values)


def _fraction(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _rank(number: int, epochs: Sequence[EpochRecord]) -> RankRecord:
    metrics = dict(epochs[-1].metrics) if epochs else {}
    return RankRecord(rank=number, metrics=metrics, epochs=list(epochs))
