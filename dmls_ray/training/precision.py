"""Number formats of the forward and backward pass, and whether the hardware has units for them and for int8."""

from __future__ import annotations

import platform
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from dmls_ray.config.training import TrainingConfig

_AUTOCAST = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}


def set_tf32(allowed: bool) -> None:
    """Let the matrix units of a GPU round fp32 to TF32, or not; PyTorch lets cuDNN do so by default."""
    backends: Any = torch.backends
    if hasattr(backends, "fp32_precision"):
        # The newer switches (PyTorch 2.9). One that an earlier run has set would contradict the older ones below.
        operations = [getattr(part, name) for part in (backends.cudnn, backends.mkldnn) for name in ("conv", "rnn")]
        for switch in (backends, backends.cudnn, backends.mkldnn, backends.mkldnn.matmul, *operations):
            switch.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = allowed


def has_tf32() -> bool:
    """Whether matrix products of fp32 are rounded to TF32 on a GPU."""
    products = torch.backends.cuda.matmul
    # Code that has set the newer switch may not ask for the older one.
    return bool(products.fp32_precision == "tf32" if hasattr(products, "fp32_precision") else products.allow_tf32)


def autocast(config: TrainingConfig, device: torch.device) -> AbstractContextManager[object]:
    """The context of a forward pass: PyTorch picks the operations that are safe in the half format."""
    dtype = _AUTOCAST.get(config.precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


def make_scaler(config: TrainingConfig, device: torch.device) -> torch.amp.GradScaler:
    """The scaler that keeps small fp16 gradients from vanishing; for the other formats it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=config.precision == "amp-fp16")


def has_vnni() -> bool | None:
    """Whether an x86 processor has VNNI or AMX, which add products of 8-bit integers in 32 bits.

    Without them, kernels add two products in 16 bits, which overflow. None on other processors: those of ARM have no
    such kernels, with dot product instructions or without.
    """
    return _has_units("avx512_vnni", "avx_vnni", "amx_int8")


def slow_precisions(precisions: Collection[str]) -> list[str]:
    """Those for which this processor has no units, where it is an x86 processor."""
    units = {"amp-bf16": ("avx512_bf16", "amx_bf16"), "amp-fp16": ("avx512_fp16", "amx_fp16")}
    return [name for name in units if name in precisions and _has_units(*units[name]) is False]


def _has_units(*names: str) -> bool | None:
    """Whether the processor has one of these units; None where it is no x86 processor."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return None
    has = torch.cpu.get_capabilities()
    return any(has.get(name) for name in names)
