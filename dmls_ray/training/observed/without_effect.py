"""What a program asks of PyTorch that has no effect on its device or in its steps."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from dmls_ray.training.compat import sampler_of

_TRAINED, _ENDED = "_dmls_ray_trained", "_dmls_ray_ended"
"""Attributes of a sampler: whether its pass trains, and its epoch and seed when such a pass ended."""
_SIDE = 256
"""Rows and columns of a product for which PyTorch takes another number format, where the processor has units for it."""
_ROUNDED = 1e-4
"""Relative error of the product above which its factors were rounded: then it is 1e-3, and 1e-6 in float32."""


def pins_in_vain(loader: DataLoader[Any]) -> bool:
    """Whether a loader is to copy its batches to pinned memory, which PyTorch leaves out without an accelerator."""
    return loader.pin_memory and not torch.cuda.is_available()


class Orders:
    """Whether passes that train on what a `DistributedSampler` shuffles have the order of the one before.

    One of another type may shuffle in another way.
    """

    def __init__(self) -> None:
        self.is_repeated = False
        """Whether a pass has trained in the order of the one before, as the epoch of the sampler stayed the same."""
        self._read: dict[str, Any] = {}
        """Attributes of the sampler of the batch that was read last."""

    def batch_read(self, iterator: Any, batch: Any) -> None:
        """A loader has given a batch, or None at the end of a pass."""
        sampler = sampler_of(iterator)
        self._read = vars(sampler) if type(sampler) is DistributedSampler and sampler.shuffle else {}
        if batch is None and self._read.pop(_TRAINED, False):
            self._read[_ENDED] = sampler.epoch, sampler.seed

    def backward_began(self) -> None:
        """A backward pass begins, of the batch that was read last."""
        if self._read:
            self._read[_TRAINED] = True
            self.is_repeated |= self._read.get(_ENDED) == (self._read["epoch"], self._read["seed"])


def precision_in_vain(device: torch.device) -> str:
    """The precision of matrix products that was asked for on a CPU whose products are exact to float32, else empty."""
    if device.type != "cpu":
        return ""
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:
        # The program has set it by the newer switches, after which PyTorch refuses to say.
        return ""
    if precision == "highest":
        return ""
    # Rounded to 1 by bfloat16 and by TF32.
    value = 1 + 2**-11
    factor = torch.full((_SIDE, _SIDE), value, dtype=torch.float32, device="cpu")
    error = abs((factor @ factor)[0, 0].item() / (_SIDE * value**2) - 1)
    return precision if error < _ROUNDED else ""
