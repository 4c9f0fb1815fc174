"""Batches of images: their number format, their memory layout and their augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, Protocol

import torch
from torch import Tensor

from dmls_ray.training.sharding import MicroBatch
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.augmentation import Augmentation

Batch = tuple[Tensor, Tensor]
"""Images (batch x channels x height x width, float32, from -1 to 1) and labels (batch, int64), on the rank's device."""

EvalSplit = Literal["test", "validation"]
"""Samples that are evaluated and never trained on."""

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class Loader(Protocol):
    """The data of one rank."""

    shape: tuple[int, int, int]
    """Channels, height, width."""
    classes: int
    train_samples: int
    validation_samples: int
    test_samples: int

    def train(self, epoch: int) -> Iterator[tuple[MicroBatch, Batch]]:
        """This rank's micro-batches of an epoch (from 0), each with its samples."""

    def evaluation(self, split: EvalSplit = "test") -> Iterator[Batch]:
        """This rank's share of the test or the validation samples."""

    def close(self) -> None:
        """End worker processes, if there are any."""


def normalize(images: Tensor) -> Tensor:
    """uint8 from 0 to 255 as float32 from -1 to 1: scaled to [0, 1], then mean 0.5 and standard deviation 0.5, as in
    report A. Floats stay as they are.
    """
    return images if images.dtype.is_floating_point else images.to(torch.float32).div_(127.5).sub_(1)


def to_memory_format(images: Tensor, config: TrialConfig) -> Tensor:
    """The images in the configured memory format."""
    return images.contiguous(memory_format=MEMORY_FORMATS[config.memory_format])


def augmentation_of_epoch(
    loader: Loader, config: TrialConfig, epoch: int, device: torch.device
) -> Callable[[Tensor, MicroBatch], Tensor]:
    """The configured augmentation of the micro-batches of an epoch."""
    if config.augmentation == "none":
        return lambda images, micro_batch: images
    return Augmentation(config, loader.train_samples, min(loader.shape[1:]), epoch, device)
