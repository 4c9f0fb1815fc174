"""`Evaluation`: a time that was left out as a test of the model, and whether it may be a part of the training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dmls_ray.training.clocks import LeftOut
from dmls_ray.training.observed.seen_steps import SeenStep

Meaning = Literal["auto", "test", "training"]
"""What times are that look like tests, by the user's word; auto: as they look."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A time that was left out as a test of the model."""

    time: LeftOut
    data: frozenset[int]
    """The data sets that loaders read in it, by their sizes."""


def doubtful_ms(evaluations: Sequence[Evaluation], steps: Sequence[SeenStep]) -> float:
    """Milliseconds that were left out as tests, and may be a part of the training.

    A model generates samples, plays, or scores and labels data in evaluation mode, too. It is tested beyond doubt where
    a loader reads other data than the training, which are no larger set that training reads a part of, and the
    training keeps its data sets, as it does not where the model makes them or chooses what is in them.
    """
    trained = {size for step in steps for batch in step.batches for size in batch.data}
    reading = [step for step in steps if step.batches]
    do_change = bool(reading) and _read_in(reading[0]) != _read_in(reading[-1])
    return sum(item.time.ms for item in evaluations if do_change or item.data <= trained)


def _read_in(step: SeenStep) -> set[int]:
    return {batch.dataset for batch in step.batches}
