"""What a change does to memory, and the memory of a batch that was not run, by a straight line over those that were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dmls_ray.analysis.findings.measures import Ratio, Verdict
from dmls_ray.analysis.memory import EXACT, MEMORY, hardly_differs, memory_metric
from dmls_ray.analysis.metrics import format_of
from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.config.until import Until


@dataclass(frozen=True)
class MemorySize(Ratio):
    """A size of memory, of which a small difference is of no use, however sure it is."""

    sizes: tuple[float, ...]
    """MiB of the trials that are compared."""

    better = -1
    is_shown_equal = False

    @property
    def noun(self) -> str:
        return MEMORY[self.metric]

    def verdict(self, contrast: Contrast, until: Until) -> Verdict:
        if hardly_differs(self.sizes, self.metric):
            return "equal"
        return super().verdict(contrast, until)


def memory_of(rows: Sequence[Row]) -> list[MemorySize]:
    """The measure of the memory of some trials; none where it was not measured."""
    metric = memory_metric(rows)
    sizes = [row.estimates[metric].centre for row in rows if metric in row.estimates]
    return [MemorySize(metric, tuple(sizes))] if sizes else []


MIN_BATCHES = 3
"""Batches from which a line can miss one of them."""
MOST_MISSED = 0.05
"""Largest distance of a line from the memory of a batch, as a share of that memory."""
FARTHEST = 4
"""How many times the largest batch an estimate may be for."""


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
        return (
            f"{self.axis} {batch:g} needs about {form(self.at(batch))} MiB of {MEMORY[self.metric]}, by a line over "
            f"{self.axis} {', '.join(f'{item:g}' for item in self.batches)} that is at most {form(self.missed)} MiB off"
        )


def memory_line(rows: Sequence[Row], axis: str, metric: str) -> MemoryLine | None:
    """The line over trials that differ in the batch alone; None if no three of the largest batches lie on one.

    Small batches may lie above it: there the update of the parameters can need more than the forward pass keeps. So the
    smallest are left out until a line fits.
    """
    sizes = {float(row.factors[axis]): size for row in rows if (size := row.value_of(metric)) is not None}
    for start in range(len(sizes) - MIN_BATCHES + 1):
        batches = sorted(sizes)[start:]
        if metric not in EXACT and hardly_differs([sizes[batch] for batch in batches], metric):
            return None  # a line through noise
        line = _fitted(axis, metric, {batch: sizes[batch] for batch in batches})
        if line.per_sample > 0 and all(
            abs(line.at(batch) - sizes[batch]) <= MOST_MISSED * sizes[batch] for batch in batches
        ):
            return line
    return None


def _fitted(axis: str, metric: str, sizes: Mapping[float, float]) -> MemoryLine:
    batches = np.array([*sizes])
    measured = np.array([*sizes.values()])
    per_sample, fixed = np.polyfit(batches, measured, 1)
    missed = float(np.abs(fixed + per_sample * batches - measured).max())
    return MemoryLine(metric, axis, [*sizes], float(fixed), float(per_sample), missed)
