"""Which published run corresponds to a run of a sweep, and how the two configurations differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dmls_ray.analysis.published.data import published
from dmls_ray.analysis.results import factors_of
from dmls_ray.config.fields import FieldSpec
from dmls_ray.records.model import RunRecord
from dmls_ray.workloads.registry import workload_of

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


def match_training(record: RunRecord) -> Match | None:
    """The published run that stands beside one of ours; None where the reports have none.

    The model, batch_per_rank, accum_steps, world_size, machines, backend, precision, quantization and batch_norm are
    equal, and so is the data set, or else ours is a tree of images with as many samples. Of several such runs it is the
    one that differs in the fewest other fields: those that the report tells, and those of ours that are not at their
    default.
    """
    ours = {**factors_of(record), **_resolved(record)}
    specs = workload_of(record.config).specs()
    found = []
    for theirs in _all():
        config = theirs.config
        same_data = ours["dataset"] == config["dataset"] or (
            ours["dataset"] == "image_folder" and record.train_samples == theirs.train_samples
        )
        if same_data and all(ours.get(name) == config.get(name) for name in _MATCHED):
            found.append((_differences(ours, config, specs), theirs))
    if not found:
        return None
    apart, best = min(found, key=lambda item: len(item[0]))
    return Match(best, ", ".join(apart))


@cache
def _all() -> Sequence[RunRecord]:
    return published().records


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any], specs: Mapping[str, FieldSpec]) -> list[str]:
    """What is not equal, ours / theirs."""
    # Regularised runs have dropout, and the report does not tell its rate.
    unknown = {"dropout": "of a rate that is not told"} if theirs["batch_norm"] == "on" else {}
    told = []
    for name in dict.fromkeys((*theirs, *unknown, *ours)):
        condition = specs[name].setting.counts_with if name in specs else None
        mine = ours.get(name)
        if name in _NO_MATTER or (condition is not None and ours.get(condition[0]) not in condition[1]):
            continue
        if name in unknown or (name not in theirs and name in specs and mine != specs[name].default):
            told.append(f"{name} {_told(mine)} / {unknown.get(name, _NOT_TOLD)}")
        elif name in theirs and mine != theirs[name]:
            told.append(f"{name} {_told(mine)} / {_told(theirs[name])}")
    return told


def _resolved(record: RunRecord) -> dict[str, Any]:
    """What our settings became: gloo for auto, and the machines that the ranks ran on."""
    return {"backend": record.backend or None, "machines": len({rank.machine for rank in record.ranks}) or 1}


def _told(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
