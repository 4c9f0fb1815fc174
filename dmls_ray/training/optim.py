"""Optimizers by name, fused where the device has a fused kernel."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from dmls_ray.config import TrialConfig


def make_optimizer(config: TrialConfig, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
    """The optimizer of the configuration, at its scaled learning rate.

    PyTorch has fused kernels of adam, adamw and sgd for CUDA and for CPUs, and none of rmsprop.
    """
    lr, decay = config.scaled_lr, config.weight_decay
    if config.optimizer == "adam":
        return Adam(parameters, lr=lr, weight_decay=decay, fused=True)
    if config.optimizer == "adamw":
        return AdamW(parameters, lr=lr, weight_decay=decay, fused=True)
    if config.optimizer == "sgd":
        return SGD(parameters, lr=lr, momentum=config.momentum, weight_decay=decay, fused=True)
    return RMSprop(parameters, lr=lr, momentum=config.momentum, weight_decay=decay, foreach=True)
