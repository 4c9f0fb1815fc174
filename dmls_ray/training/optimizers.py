"""Optimizers by name, fused where the device has a fused kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from dmls_ray.config.training import TrainingConfig

_KINDS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "sgd": SGD, "rmsprop": RMSprop}


def make_optimizer(config: TrainingConfig, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
    """The optimizer of the configuration, at its scaled learning rate.

    PyTorch has fused kernels of adam, adamw and sgd for CUDA and for CPUs, and none of rmsprop.
    """
    options: dict[str, Any] = {"lr": config.scaled_lr, "weight_decay": config.weight_decay}
    options |= {"foreach": True} if config.optimizer == "rmsprop" else {"fused": True}
    if config.optimizer in ("sgd", "rmsprop"):
        options["momentum"] = config.momentum
    kind = _KINDS[config.optimizer]
    if config.zero_redundancy:
        return ZeroRedundancyOptimizer(parameters, optimizer_class=kind, **options)
    return kind(parameters, **options)
