"""What a program asks of PyTorch that has no effect on its device or in its steps."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from dmls_ray.training.compat import sampler_of

_ENDED = "_dmls_ray_ended"
"""Attribute of a sampler: its epoch when a pass over the data ended."""
_SIDE = 256
"""Rows and columns of a product for which PyTorch takes another number format, where the processor has units for it."""
_ROUNDED = 1e-4
"""Relative error of the product above which its factors were rounded: then it is 1e-3, and 1e-6 in float32."""


def pins_in_vain(loader: DataLoader[Any]) -> bool:
    """Whether a loader is to copy its batches to pinned memory, which PyTorch leaves out without an accelerator."""
    return loader.pin_memory and not torch.cuda.is_available()


def repeats_order(iterator: Any, batch: Any) -> bool:
    """Whether a batch is of a pass that has the order of the one before, since the code has not called `set_epoch`.

    Args:
        iterator: of a loader, after each read.
        batch: what it gave; None at the end of a pass.
    """
    sampler = sampler_of(iterator)
    if not isinstance(sampler, DistributedSampler) or not sampler.shuffle:
        return False
    if batch is None:
        sampler.__dict__[_ENDED] = sampler.epoch
        return False
    return sampler.__dict__.get(_ENDED) == sampler.epoch


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
