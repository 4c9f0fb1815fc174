"""`TrainingChange`: whether two trials train the same, by what was seen of them: samples, number format and losses."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Literal

from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.trial import Trial

_ROUNDING = 1e-3
"""Relative difference up to which losses of the first steps are equal: in float32, sums in another order and fused
operations differ by less."""
_COARSE_ROUNDING = 2e-2
"""The same where a number format of 16 bits is used."""

Losses = Literal["equal", "differ", "unknown"]


@dataclass(frozen=True)
class TrainingChange:
    """How the training of two trials differs."""

    global_batch: tuple[float, float]
    """Samples of a step on all ranks, of the trial and of the other one."""
    number_format: tuple[str, str]
    """In what the models computed; empty where that was not seen."""
    losses: Losses
    """Whether the losses of the first steps are equal within rounding, in all blocks that have both trials."""
    first_losses: tuple[float, float]
    """Medians of these losses; 0 where they are unknown."""

    @property
    def is_same(self) -> bool:
        """Whether nothing that was seen of the training differs."""
        has_one_batch = self.global_batch[0] == self.global_batch[1]
        return has_one_batch and self.number_format[0] == self.number_format[1] and self.losses == "equal"


def training_change(pair: Pair) -> TrainingChange | None:
    """How the training of two trials differs; None where their samples were not counted as they trained."""
    trial, base = pair.trial, pair.base
    batches = trial.value_of("samples_per_step"), base.value_of("samples_per_step")
    if batches[0] is None or batches[1] is None or trial is base:
        return None
    formats = _number_format(trial), _number_format(base)
    losses, first = _compare_losses(trial, base, coarse="16" in "".join(formats))
    return TrainingChange((batches[0], batches[1]), formats, losses, first)


def _number_format(trial: Trial) -> str:
    return next((str(record.facts["number_format"]) for record in trial.counted if "number_format" in record.facts), "")


def _compare_losses(trial: Trial, base: Trial, *, coarse: bool) -> tuple[Losses, tuple[float, float]]:
    """Compare losses of runs with one seed; those of rank 0, so only for equal numbers of ranks."""
    after, before = trial.by_block("early_loss"), base.by_block("early_loss")
    blocks = after.keys() & before.keys()
    if not blocks or trial.world_size != base.world_size:
        return "unknown", (0.0, 0.0)
    # A script that accumulates gradients may divide the loss of each pass, or not.
    passes, base_passes = trial.value_of("backward_passes") or 1.0, base.value_of("backward_passes") or 1.0
    allowed = _COARSE_ROUNDING if coarse else _ROUNDING
    are_equal = any(
        all(abs(after[block] * factor - before[block]) <= allowed * abs(before[block]) for block in blocks)
        for factor in (1.0, passes / base_passes)
    )
    medians = median(after[block] for block in blocks), median(before[block] for block in blocks)
    return "equal" if are_equal else "differ", medians
