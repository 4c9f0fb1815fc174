"""Parts of the record of a run: its epochs and its ranks, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

STEP_QUANTILES = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
"""Shares of a rank's counted steps at which its record says how long they took at most."""

Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Whole number of at most 64 bits."""

# Type checkers see these types as the record has them; the decoder checks what stands in the file.
if TYPE_CHECKING:
    FloatList = list[float]
    Metrics = dict[str, float]
else:
    FloatList = list[float | None]
    """Numbers; one that was not finite is null in JSON."""
    Metrics = dict[str, Int | float]
    """Finite numbers by the name of their `Metric`; what was not measured is not in it."""


class EpochRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One pass over the training samples, of all ranks together or of one rank."""

    epoch: Int
    """From 1; a user-defined training function may number its epochs otherwise."""
    metrics: Metrics = {}
    facts: dict[str, Any] = {}
    """Plain values that are no number, by name, which a user-defined training function reported."""

    @property
    def values(self) -> dict[str, Any]:
        """All of it by name, as ranks return it."""
        return {"epoch": self.epoch, **self.facts, **self.metrics}


class RankRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One rank of a run: times by its clock, memory, and results on its share of the samples."""

    rank: Int
    machine: str = ""
    device: str = ""
    pid: Int = 0
    metrics: Metrics = {}
    no_tensor_mem: str = ""
    """Why tensor_mem_mib is not known, in one line."""
    step_ms_quantiles: FloatList = []
    """Milliseconds of a counted step at each of `STEP_QUANTILES`, to four digits."""
    parameter_sketch: FloatList = []
    """Number, sum of squares and two random projections of the parameters after training; empty where unknown."""
    sampled_parameters: FloatList = []
    """A random projection of the parameters, relative to their norm, after optimizer steps 1, 2, 3, 5, 8, 13, ...;
    empty where unknown."""
    sampled_losses: FloatList = []
    """The loss of the last backward pass before each of these samples; None where that was no loss."""
    utilization: dict[str, FloatList] = {}
    """Utilization of processor and GPU: for each quantity, its values at the sampled points."""
    epochs: list[EpochRecord] = []
    """The epochs of this rank, over its share of the samples."""

    @property
    def values(self) -> dict[str, Any]:
        """All but the epochs by name; the utilization as the mean of each sampled quantity."""
        fields = {name: getattr(self, name) for name in _RANK_FIELDS}
        return fields | self.metrics | _busy(self.utilization)


_RANK_FIELDS = [name for name in RankRecord.__struct_fields__ if name not in ("metrics", "epochs", "utilization")]


def _busy(utilization: Mapping[str, Sequence[float | None]]) -> dict[str, float]:
    means = {}
    for name, values in utilization.items():
        samples = [value for value in values if value is not None]
        if name != "at_s" and samples:
            means[f"mean {name}"] = fmean(samples)
    return means
