"""The learning rate by optimizer step: warm-up, then a schedule by name."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from dmls_ray.config.training import TrainingConfig


def make_schedule(config: TrainingConfig, optimizer: Optimizer, steps: int) -> LRScheduler | None:
    """The schedule of an optimizer for a run of `steps` optimizer steps; None if the learning rate is constant.

    one-cycle is Smith & Topin, arXiv 1708.07120, with constant momentum. It includes a warm-up.
    """
    if config.lr_schedule == "one-cycle":
        # One more than steps: the schedule is also stepped after the last optimizer step.
        return OneCycleLR(optimizer, max_lr=config.scaled_lr, total_steps=steps + 1, cycle_momentum=False)
    if config.lr_schedule == "constant" and not config.lr_warmup_steps:
        return None
    return LambdaLR(optimizer, lr_factor(config, steps))


def lr_factor(config: TrainingConfig, steps: int) -> Callable[[int], float]:
    """Factor of the learning rate in each optimizer step, from 0."""
    warmup = min(config.lr_warmup_steps, steps)
    after_warmup = AFTER_WARMUP[config.lr_schedule]

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return after_warmup(step - warmup, steps - warmup)

    return factor


def constant(step: int, steps: int) -> float:
    """Factor 1 in every step."""
    return 1.0


def cosine(step: int, steps: int) -> float:
    """Factor that falls from 1 to 0: Loshchilov & Hutter, arXiv 1608.03983, without restarts."""
    return 0.5 * (1 + math.cos(math.pi * step / max(steps, 1)))


AFTER_WARMUP: dict[str, Callable[[int, int], float]] = {"constant": constant, "cosine": cosine}
"""Schedules that a warm-up can precede: the factor in step 0, 1, ... of so many steps after it."""
