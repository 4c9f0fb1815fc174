"""The runs of the published reports, and which of them match ours.

`runs.jsonl` next to this module has them as records; `results/published` says how they follow from the printed figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dmls_ray.analysis.results import Results, factors_of
from dmls_ray.config.fields import FieldSpec
from dmls_ray.records.model import RunRecord
from dmls_ray.storage.runs_file import read_records
from dmls_ray.workloads.registry import workload_of

FOLDER = Path(__file__).parent
"""The folder of `runs.jsonl`."""

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
    trained = [record for record in read_records(FOLDER) if "dataset" in record.config]
    return Results(FOLDER, [record for record in trained if dataset in (None, record.config["dataset"])])


class Match(NamedTuple):
    """A published run of the same configuration, as far as the report states it."""

    record: RunRecord
    differs_in: str
    """Other fields that differ, measured / published; empty if none does."""


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
    if theirs["batch_norm"] == "on":  # these have dropout
        theirs = {**theirs, "dropout": "of a rate that is not reported"}
    differences = []
    for name in dict.fromkeys((*theirs, *ours)):
        condition = specs[name].setting.counts_with if name in specs else None
        value = ours.get(name)
        if name in _NO_MATTER or (condition is not None and ours.get(condition[0]) not in condition[1]):
            continue
        # What a report does not state is compared with the default.
        default = specs[name].default if name in specs else value
        if value != theirs.get(name, default):
            differences.append(f"{name} {_format(value)} / {_format(theirs.get(name, 'not reported'))}")
    return differences


def _format(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
