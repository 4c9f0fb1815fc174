"""A short training that a process does and discards before its first run.

The first training of a process is slower than later ones: PyTorch loads much at its first use, and makes its threads
and memory pools.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from dmls_ray.config.training import TrainingConfig
from dmls_ray.training.engine import run_training
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.sharding import MicroBatch, micro_batches
from dmls_ray.training.task import EvalSplit, Forward, TrainingTask


def discard_first_run(device: str) -> float:
    """Train a small model on this device; returns the seconds that it took.

    On a CPU the model is under DDP, in a process group of this process alone. A failure is only a warning: if the
    device cannot be used, the runs will say so.
    """
    began = time.perf_counter()
    # DDP and the collectives ask the configuration whether there are several ranks. On a GPU there is no DDP, since
    # setting up NCCL would take longer than a run.
    config = TrainingConfig(batch_per_rank=4, world_size=2 if device == "cpu" else 1, epochs=1)
    rank = RankInfo(world_size=config.world_size, device=device, backend="gloo")
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            run_training(config, rank, lambda event: None, _SmallTask)
        finally:
            dist.destroy_process_group()
    except Exception as error:  # noqa: BLE001 - nothing that a user asked for has failed
        warnings.warn(f"The first run of this process may be slow: {type(error).__name__}: {error}", stacklevel=2)
    return time.perf_counter() - began


class _SmallTask(TrainingTask):
    """A convolution and a linear layer on images of zeros."""

    train_samples, validation_samples, test_samples = 24, 0, 4

    def __init__(self, config: TrainingConfig, rank: RankInfo, device: torch.device) -> None:
        self._config, self._device = config, device
        self.model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
        self.model.to(device)

    def train_batches(self, epoch: int) -> Iterator[tuple[MicroBatch, Any]]:
        for micro_batch in micro_batches(self.train_samples, self._config, rank=0):
            yield micro_batch, self.example_batch(micro_batch.stop - micro_batch.start)

    def evaluation_batches(self, split: EvalSplit) -> Iterator[Any]:
        yield self.example_batch(self.test_samples)

    def example_batch(self, samples: int) -> Any:
        images = torch.zeros(samples, 1, 8, 8, device=self._device)
        return images, torch.zeros(samples, dtype=torch.int64, device=self._device)

    def predict(self, forward: Forward, batch: Any) -> Any:
        return forward(batch[0])

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        return F.cross_entropy(outputs, batch[1], reduction="sum")
