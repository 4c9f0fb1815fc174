"""Memory of a rank: which number stands for it, its limit, and that of a batch that was not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmls_ray.analysis.metrics import format_of
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import TRAINING_METRICS

if TYPE_CHECKING:
    from dmls_ray.analysis.trials.trial import Trial

MEMORY: Mapping[str, str] = {
    "tensor_mem_mib": "tensor memory",
    "device_mem_mib": "allocated memory of the GPU",
    "host_mem_mib": "growth of the resident set",
}
"""Metric -> its words in a sentence; the first one that all trials of a table have stands for their memory."""

MEMORY_KINDS = tuple(metric.name for metric in TRAINING_METRICS if metric.part_of == "tensor_mem_mib")
"""The parts of tensor_mem_mib."""


def memory_metric(rows: Sequence[Trial]) -> str:
    """The metric by which the memory of these trials is compared; empty if none has any."""
    measured = [row for row in rows if any(name in row.estimates for name in MEMORY)]
    names = [name for name in MEMORY if any(name in row.estimates for row in measured)]
    shared = [name for name in names if all(name in row.estimates for row in measured)]
    return next(iter([*shared, *names]), "")


EXACT = tuple(metric.name for metric in TRAINING_METRICS if metric.is_exact)
"""Metrics that are the same in every repeat, so that one run says what they are."""

EQUAL_MEMORY = 0.02
"""Below this share a difference in memory is of no use, however sure it is."""
EQUAL_HOST_MIB = 4.0
"""Below this a difference in host_mem_mib is of no use: repeats of one small model differ by up to 2 MiB."""


def hardly_differs(sizes: Sequence[float] | NDArray[np.float64], metric: str) -> bool:
    """Whether these sizes in MiB, of a metric of memory, are about the same; False without any."""
    noise = EQUAL_HOST_MIB if metric == "host_mem_mib" else 0.0
    return len(sizes) > 0 and max(sizes) - min(sizes) < max(EQUAL_MEMORY * min(sizes), noise)


def memory_limit(row: Trial) -> tuple[str, float] | None:
    """Name and size of the memory limit of a rank: the memory of the GPU, or that of the host divided by its ranks.

    None if it is unknown, as with ranks on a machine that the record does not describe.
    """
    record = next((item for item in row.records if item.outcome in (Outcome.OK, Outcome.OOM) and item.device), None)
    if record is None:
        return None
    if record.device.startswith("cuda"):
        sizes = record.machine.get("gpu_memory_mib") or []
        return ("limit: memory of the GPU", float(min(sizes))) if sizes else None
    host, memory = record.machine.get("host"), record.machine.get("memory_mib")
    if memory is None or any(rank.machine != host for rank in record.ranks):
        return None
    ranks = row.world_size
    return (f"limit: host memory / {ranks} ranks" if ranks > 1 else "limit: host memory", memory / ranks)


def kind_name(metric: str) -> str:
    """The kind of memory in words: `activation`."""
    return metric.removesuffix("_mem_mib")


MIN_BATCHES = 3
"""Batches from which a line can miss one of them."""
MOST_MISSED = 0.05
"""Largest distance of a line from the memory of a batch, as a share of that memory."""


@dataclass(frozen=True)
class MemoryLine:
    """Memory = fixed + batch x per_sample, over some batches."""

    metric: str
    axis: str
    """The field: batch_per_rank or global_batch."""
    batches: Sequence[float]
    fixed: float
    per_sample: float
    missed: float
    """Largest distance from the measured memory of a batch, in MiB."""

    def at(self, batch: float) -> float:
        """The memory of a batch, in MiB."""
        return self.fixed + self.per_sample * batch

    def describe(self, batch: float) -> str:
        """An estimate, with what it follows from and how far the line is from what was measured."""
        form = format_of(self.metric)
        measured = ", ".join(f"{item:g}" for item in self.batches)
        return (
            f"{self.axis} {batch:g} needs about {form(self.at(batch))} MiB of {MEMORY[self.metric]}, by a line over "
            f"{self.axis} {measured} that is at most {form(self.missed)} MiB off"
        )


def memory_line(trials: Sequence[Trial], axis: str, metric: str) -> MemoryLine | None:
    """The line over trials that differ in the batch alone; None if no three of the largest batches lie on one.

    Small batches may lie above it: there the update of the parameters can need more than the forward pass keeps. So the
    smallest are left out until a line fits.
    """
    measured = {float(trial.factors[axis]): trial.value_of(metric) for trial in trials if metric in trial.estimates}
    batches, sizes = np.array(sorted(measured.items()), dtype=float).reshape(-1, 2).T
    while len(batches) >= MIN_BATCHES:
        if metric not in EXACT and hardly_differs(sizes, metric):
            return None  # a line through noise
        per_sample, fixed = np.polyfit(batches, sizes, 1)
        missed = np.abs(fixed + per_sample * batches - sizes)
        if per_sample > 0 and (missed <= MOST_MISSED * sizes).all():
            return MemoryLine(metric, axis, batches.tolist(), float(fixed), float(per_sample), float(missed.max()))
        batches, sizes = batches[1:], sizes[1:]
    return None
