"""Random changes of training images, for a whole batch at once on the device it is on."""

from __future__ import annotations

import torch
from torch import Tensor

from dmls_ray.training.process import AUGMENTATION, mixed_seed
from dmls_ray.training.sharding import MicroBatch
from dmls_ray.workloads.classification.config import TrialConfig

_PADDED_SHARE = 8
"""Crops are of the image padded by an eighth of its side: 4 pixels for 32, as He et al., arXiv 1512.03385."""


class Augmentation:
    """Flips and padded crops, as configured.

    The change of a sample depends on seed, epoch and its position in the epoch's order only: it is the same at any
    world size.
    """

    def __init__(self, config: TrialConfig, samples: int, side: int, epoch: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(mixed_seed(config.seed, AUGMENTATION, epoch))
        self._flip = self._offsets = None
        self._pad = max(side // _PADDED_SHARE, 1)
        if "flip" in config.augmentation:
            self._flip = (torch.rand(samples, generator=generator) < 0.5).to(device)
        if "crop" in config.augmentation:
            self._offsets = torch.randint(2 * self._pad + 1, (samples, 2), generator=generator).to(device)

    def __call__(self, images: Tensor, micro_batch: MicroBatch) -> Tensor:
        """Augmented images of a micro-batch (batch x channels x height x width, normalised)."""
        samples = slice(micro_batch.start, micro_batch.stop)
        if self._flip is not None:
            images = torch.where(self._flip[samples, None, None, None], images.flip(3), images)
        if self._offsets is not None:
            images = _crop(images, self._offsets[samples], self._pad)
        return images


def _crop(images: Tensor, offsets: Tensor, pad: int) -> Tensor:
    """A crop of the image's size from the image padded by a black border of `pad` pixels."""
    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (pad, pad, pad, pad), value=-1.0)
    rows = offsets[:, 0, None] + torch.arange(height, device=images.device)
    columns = offsets[:, 1, None] + torch.arange(width, device=images.device)
    index = torch.arange(count, device=images.device)[:, None, None]
    # Indexing the last two dimensions together puts channels last; the second permute restores the order.
    return padded.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
