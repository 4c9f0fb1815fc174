"""Optimizers and learning-rate schedules, by their names in the configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from dmls_ray.config.training import TrainingConfig

_OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "sgd": SGD, "rmsprop": RMSprop}


def make_optimizer(config: TrainingConfig, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """The optimizer of the configuration, at its scaled learning rate.

    PyTorch has fused kernels of adam, adamw and sgd for CUDA and for CPUs, and none of rmsprop.
    """
    options: dict[str, Any] = {"lr": config.scaled_lr, "weight_decay": config.weight_decay}
    options["foreach" if config.optimizer == "rmsprop" else "fused"] = True
    if config.optimizer in ("sgd", "rmsprop"):
        options["momentum"] = config.momentum
    kind = _OPTIMIZERS[config.optimizer]
    if config.zero_redundancy:
        return ZeroRedundancyOptimizer(parameters, optimizer_class=kind, **options)
    return kind(parameters, **options)


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
        return (step + 1) / (warmup + 1) if step < warmup else after_warmup(step - warmup, steps - warmup)

    return factor


AFTER_WARMUP: dict[str, Callable[[int, int], float]] = {
    "constant": lambda step, steps: 1.0,
    # Loshchilov & Hutter, arXiv 1608.03983, without restarts.
    "cosine": lambda step, steps: 0.5 * (1 + math.cos(math.pi * step / max(steps, 1))),
}
"""Schedules that a warm-up can precede: the factor in step 0, 1, ... of so many steps after it."""
