"""A short training that a process does and discards before its first run.

The first training of a process is slower than later ones: PyTorch loads much at its first use, and makes its threads
and memory pools.
"""

from __future__ import annotations

import time
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_STEPS = 6


def discard_first_run(device: str) -> float:
    """Train a small model on this device, in a process group of this process alone; returns the seconds that it took.

    A failure is only a warning: if the device cannot be used, the runs will say so.
    """
    began = time.perf_counter()
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            _train(torch.device(device))
        finally:
            dist.destroy_process_group()
    except Exception as error:  # noqa: BLE001 - nothing that a user asked for has failed
        warnings.warn(f"The first run of this process may be slow: {type(error).__name__}: {error}", stacklevel=2)
    return time.perf_counter() - began


def _train(device: torch.device) -> None:
    """Train and test a convolution and a linear layer on images of zeros."""
    layers = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)
    model = nn.Sequential(*layers).to(device)
    # On a GPU there is no DDP, since setting up NCCL would take longer than a run.
    forward = DistributedDataParallel(model) if device.type == "cpu" else model
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    images = torch.zeros(4, 1, 8, 8, device=device)
    labels = torch.zeros(4, dtype=torch.int64, device=device)

    for _ in range(_STEPS):
        F.cross_entropy(forward(images), labels, reduction="sum").backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.inference_mode():
        model.eval()(images).argmax(1)
    dist.all_reduce(torch.zeros(1, dtype=torch.float64))
