"""`Images`: the pixels of a set of images on a device, and memory for their grey levels."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


class Images:
    """A set of images on the device that turns them grey, with memory for the result, allocated once.

    Args:
        pictures: images x height x width x 3, in uint8.
        planar: whether to store each channel as a plane of its own.
        device: where the images are turned grey.
    """

    def __init__(self, pictures: NDArray[np.uint8], *, planar: bool, device: torch.device) -> None:
        pixels = torch.from_numpy(pictures)
        self.planar = planar
        self.pixels = (pixels.permute(0, 3, 1, 2) if planar else pixels).contiguous().to(device)
        """uint8, contiguous: images x height x width x 3 (interleaved), or images x 3 x height x width (planar)."""
        self.grey = torch.zeros(pictures.shape[:3], dtype=torch.uint8, device=device)
        """uint8, contiguous, on the same device: images x height x width."""

    def channels(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Red, green and blue, each images x height x width."""
        return tuple(self.pixels.unbind(1 if self.planar else 3))  # type: ignore[return-value]

    @property
    def bytes_moved(self) -> int:
        """The least that a pass moves: each pixel is read once, and its grey level written once."""
        return self.pixels.numel() + self.grey.numel()
