"""The memory of a batch that was not run, by a straight line over those that were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmls_ray.analysis.memory import EXACT, MEMORY, hardly_differs
from dmls_ray.analysis.metrics import format_of
from dmls_ray.analysis.trials.trial import Trial

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
