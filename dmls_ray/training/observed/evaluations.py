"""`Evaluation`: a time that looks like a test of the model, and whether it may be a part of the training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dmls_ray.training.clocks import LeftOut
from dmls_ray.training.marks import elapsed_ms
from dmls_ray.training.observed.seen_steps import SeenStep

Meaning = Literal["auto", "test", "training"]
"""What times are that look like tests, by the user's word; auto: as they look."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A time that looks like a test of the model."""

    time: LeftOut
    data: frozenset[int]
    """The data sets that loaders read in it, by their sizes."""
    is_counted: bool = False
    """Whether its time was not left out, since it had backward passes, as of an attack on the model's inputs."""


def doubtful_ms(evaluations: Sequence[Evaluation], steps: Sequence[SeenStep]) -> float:
    """Milliseconds that may be of tests, and may be a part of the training.

    A model generates samples, plays, or scores and labels data in evaluation mode, too. It is tested beyond doubt where
    a loader reads other data than the training, which are no larger set that training reads a part of, and the
    training keeps its data sets, as it does not where the model makes them or chooses what is in them.
    """
    trained = {size for step in steps for batch in step.batches for size in batch.data}
    reading = [step for step in steps if step.batches]
    sets = [{batch.dataset for batch in step.batches} for step in (*reading[:1], *reading[-1:])]
    do_change = bool(sets) and sets[0] != sets[-1]
    total = 0.0
    for item in evaluations:
        if item.is_counted:
            # On other data it is as likely a test as a part of the training.
            total += 0.0 if item.data <= trained else elapsed_ms(item.time.began, item.time.ended)
        elif do_change or item.data <= trained:
            total += item.time.ms
    return total
