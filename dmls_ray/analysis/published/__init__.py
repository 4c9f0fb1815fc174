"""The figures of the reports that this project makes repeatable, as if they were runs of ours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from dmls_ray.analysis.results import GRAYSCALE, OWN, Results, factors_of, turns_grey
from dmls_ray.records.model import EpochRecord, Outcome, RankRecord, RunRecord
from dmls_ray.workloads.classification.config import COUNTS_WITH, DEFAULTS

_FOLDER = Path(__file__).parent

PUBLISHED = "published"
"""The isolation of such a record; ours have `group` or `per_run`."""

IMPLEMENTATION = "implementation"
"""The table of `published_images`."""

REPORTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "A": ("cifar10", ("batch", "rank"), ("world_size", "backend")),
    "B": ("stl10", ("batch", "rank", "backend", IMPLEMENTATION), ("world_size", "backend")),
    "C": ("mnist", ("machines", "backend", "quantization"), ("machines", "backend", "quantization")),
}
"""A report's data set, the tables that it gives, and the fields that it asks about."""

_SETTINGS: dict[str, dict[str, Any]] = {
    "cifar10": {"weight_decay": 5e-4, "shuffle": False, "device": "cuda"},
    "stl10": {"image_size": 128, "device": "cuda"},
    "mnist": {"weight_decay": 5e-4, "shuffle": False, "device": "cpu", "test_batch_per_rank": 128, "seed": 123},
}
"""What a report says of all of its runs, by data set."""

_SUMMED = ("cifar10",)
"""Data sets whose printed losses are sums of batch means divided by the number of samples: batch_per_rank times as
small.
"""

_DISTURBED_FROM = {"cifar10-convnet-2gpu-gloo-bs256-fp32-10ep": 5}
"""The epoch from which on, as the report says, another process shared a run's GPUs: it says nothing of the run's
time.
"""

_MATCHED = ("model", "batch_per_rank", "accum_steps", "world_size", "machines", "backend", "precision", "quantization",
            "batch_norm")  # fmt: skip
"""What must be equal for two runs to stand side by side."""

_NO_MATTER = {
    # Which samples come when, and where they and the ranks come from.
    "seed", "data_dir", "loader", "loader_workers", "launcher", "device", "threads_per_rank", "ranks_per_machine",
    # What is looked at besides, and which steps count in a rate; global_batch follows from what is equal.
    "test_batch_per_rank", "target_accuracy", "inference_batch", "warmup_steps", "global_batch",
}  # fmt: skip
"""What makes no difference to what is trained, nor to how: the hardware is told apart."""

_NOT_TOLD = "not told"

ACCURACIES = (
    "Published accuracies on cifar10 and stl10 are rank 0's, over its own share of the test samples (half of them with "
    "2 ranks), those on mnist the mean over the ranks; ours are over all test samples."
)
"""What who reads published accuracies must know."""


def published(dataset: str | None = None) -> Results:
    """The runs that the reports describe, one repeat each.

    A run's epochs are rank 0's, as the reports have them; memory is in the unit that the report calls MB, as the
    measure `peak_mem_mb`. Accuracies are fractions from 0 to 1, losses means over samples; `epoch_s` is the median over
    the epochs that nothing disturbed. Whose accuracies they are, `ACCURACIES` says.

    Args:
        dataset: cifar10, stl10 or mnist for one report's; without it, all.
    """
    epochs: dict[str, list[dict[str, Any]]] = {}
    for row in _read("published_epochs"):
        epochs.setdefault(row["experiment"], []).append(row)
    records = [
        _record(order, row, epochs.get(row["experiment"], [])) for order, row in enumerate(_read("published_runs"))
    ]
    return Results(_FOLDER, [record for record in records if dataset in (None, record.config["dataset"])])


@dataclass(frozen=True)
class Match:
    """A published run of the same configuration, as far as the reports tell theirs."""

    record: RunRecord
    differs_in: str
    """What else is not equal, ours against theirs; empty where nothing is."""

    @property
    def hardware(self) -> str:
        """What it ran on."""
        return str(self.record.machine["hardware"])


def match(record: RunRecord) -> Match | None:
    """The published run that stands beside one of ours; None where the reports have none.

    The model, batch_per_rank, accum_steps, world_size, machines, backend, precision, quantization and batch_norm are
    equal, and so is the data set, or else ours is a tree of images with as many samples. Of several such runs it is the
    one that differs in the fewest other fields: those that the report tells, and those of ours that are not at their
    default.
    """
    if OWN in record.config:
        return _match_of_images(record)
    ours = {**factors_of(record), **_resolved(record)}
    found = []
    for theirs in _all():
        config = theirs.config
        same_data = ours["dataset"] == config["dataset"] or (
            ours["dataset"] == "image_folder" and record.train_samples == theirs.train_samples
        )
        if same_data and all(ours.get(name) == config.get(name) for name in _MATCHED):
            found.append((_differences(ours, config), theirs))
    if not found:
        return None
    apart, best = min(found, key=lambda item: len(item[0]))
    return Match(best, ", ".join(apart))


def published_images() -> Results:
    """What report B says of turning images grey, as runs of ours; `pass_ms` is of all images."""
    records = []
    for order, row in enumerate(_read("published_images")):
        config = {OWN: GRAYSCALE, **{name: row[name] for name in ("implementation", "device", *_SET)}}
        records.append(
            RunRecord(
                run_id=row["implementation"], trial_id=row["implementation"], repeat=0, order=order, order_seed=0,
                seed=0, outcome=Outcome.OK, config={**config, "world_size": 1}, isolation=PUBLISHED,
                reason=row["note"] or "",
                machine={"host": "", "cpu": row["hardware"], "hardware": row["hardware"], "gpus": []},
                images_per_s=row["images"] / row["seconds"], measures={"pass_ms": row["seconds"] * 1e3},
            )
        )  # fmt: skip
    return Results(_FOLDER, records)


def _match_of_images(record: RunRecord) -> Match | None:
    """Of the same set of images, turned grey in the same way; one launch an image may be the report's as well."""
    if not turns_grey(record):
        return None
    name = record.config["implementation"].removesuffix("_per_image")
    for theirs in published_images().records:
        same_set = all(record.config[field] == theirs.config[field] for field in _SET)
        if theirs.config["implementation"] == name and same_set:
            planar = record.config.get("layout") == "planar"
            untold = [theirs.reason] if theirs.reason else []
            return Match(theirs, "; ".join([*(["layout planar / not told"] if planar else []), *untold]))
    return None


_SET = ("images", "image_size")


@cache
def _all() -> Sequence[RunRecord]:
    return published().records


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """What is not equal, ours / theirs."""
    # Regularised runs have dropout, and the report does not tell its rate.
    unknown = {"dropout": "of a rate that is not told"} if theirs["batch_norm"] == "on" else {}
    told = []
    for name in dict.fromkeys((*theirs, *unknown, *ours)):
        other, counts = COUNTS_WITH.get(name, ("", ()))
        mine = ours.get(name)
        if name in _NO_MATTER or (other and ours.get(other) not in counts):
            continue
        if name in unknown or (name not in theirs and mine != DEFAULTS.get(name, mine)):
            told.append(f"{name} {_told(mine)} / {unknown.get(name, _NOT_TOLD)}")
        elif name in theirs and mine != theirs[name]:
            told.append(f"{name} {_told(mine)} / {_told(theirs[name])}")
    return told


def _resolved(record: RunRecord) -> dict[str, Any]:
    """What our settings became: gloo for auto, and the machines that the ranks ran on."""
    return {"backend": record.backend or None, "machines": len({rank.machine for rank in record.ranks}) or 1}


def _told(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _read(name: str) -> list[dict[str, Any]]:
    frame = pd.read_csv(_FOLDER / f"{name}.csv")
    rows: list[Any] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return rows


def _record(order: int, row: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]) -> RunRecord:
    dataset, model = row["dataset"].lower(), row["model"].partition("+")[0]
    ranks = int(row["machines"] * row["ranks_per_machine"])
    config = {
        "model": model,
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
        "batch_norm": "on" if "batch norm" in (row["regularized"] or "") else "off",
        "early_stopping": "test_loss" if "early stopping" in (row["regularized"] or "") else "off",
        **({"patience": 2} if "early stopping" in (row["regularized"] or "") else {}),
        **_SETTINGS[dataset],
    }
    record = RunRecord(
        run_id=row["experiment"], trial_id=row["experiment"], repeat=0, order=order, order_seed=0, seed=0,
        outcome=Outcome.OK, config=config, isolation=PUBLISHED, backend=config["backend"] or "",
        machine={"host": "", "cpu": row["hardware"].partition(" (")[0], "hardware": row["hardware"], "gpus": []},
        train_samples={"cifar10": 50_000, "stl10": 5_000, "mnist": 60_000}[dataset],
    )  # fmt: skip
    factor = config["batch_per_rank"] if dataset in _SUMMED else 1
    record.take_epochs(list(_epochs(epochs, 0, factor)))
    record.ranks = [_rank(number, list(_epochs(epochs, number, factor))) for number in range(ranks)]
    # No report tells training steps apart from the rest of a run.
    record.train_s = record.warmup_s = record.eval_s = None
    disturbed = _DISTURBED_FROM.get(row["experiment"], math.inf)
    seconds = [item["epoch_s"] for item in epochs
               if item["rank"] == 0 and item["epoch_s"] is not None and item["epoch"] < disturbed]  # fmt: skip
    # The first epoch has the set-up in it: of a mean over few it would be a large part.
    record.epoch_s = statistics.median(seconds) if seconds else None
    record.total_s = row["total_s"]
    for name in ("train_accuracy", "test_accuracy"):
        setattr(record, name, None if row[name] is None else row[name] / 100)
    if record.train_accuracy is not None and record.test_accuracy is not None:
        record.accuracy_gap = record.train_accuracy - record.test_accuracy
    record.measures = {} if row["peak_memory_mb"] is None else {"peak_mem_mb": row["peak_memory_mb"]}
    record.reason = row["note"] or ""
    return record


def _epochs(rows: Sequence[Mapping[str, Any]], rank: int, factor: int) -> Iterator[EpochRecord]:
    for row in rows:
        if row["rank"] != rank:
            continue
        losses: dict[str, Any] = {
            name: None if row[name] is None else row[name] * factor for name in ("train_loss", "test_loss")
        }
        shares: dict[str, Any] = {
            name: None if row[name] is None else row[name] / 100 for name in ("train_accuracy", "test_accuracy")
        }
        yield EpochRecord(epoch=int(row["epoch"]), **losses, **shares)


def _rank(number: int, epochs: Sequence[EpochRecord]) -> RankRecord:
    last = epochs[-1] if epochs else EpochRecord(epoch=0)
    told = ("epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy")
    return RankRecord(
        rank=number, train_loss=last.train_loss, train_accuracy=last.train_accuracy, test_loss=last.test_loss,
        test_accuracy=last.test_accuracy, epochs=[{name: getattr(item, name) for name in told} for item in epochs],
    )  # fmt: skip
