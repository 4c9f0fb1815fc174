"""`SeenFormat`: in what the first model computes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dmls_ray.training.observed.models import is_compiled
from dmls_ray.training.precision import has_tf32

_PRODUCTS = {
    "linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "lstm", "gru",
    "rnn_tanh", "rnn_relu",
}  # fmt: skip
"""Functions of PyTorch that compute in the number format of a model."""


class SeenFormat:
    """The number format of the first forward pass of a training.

    Args:
        device: type of the device.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._is_asked = False
        self.name = ""
        """`float32`, `tf32`, `autocast bfloat16`; empty where no forward pass was seen."""

    def forward_began(self, module: nn.Module) -> None:
        """A model begins a forward pass with gradients."""
        if self._is_asked or torch.jit.is_tracing():  # a trace is compared with a second one, without the mode
            return
        self._is_asked = True
        if any(is_compiled(part) for part in module.modules()):
            self.name = self._format_of(module, None)
            return
        products = _Products()
        products.__enter__()

        def end(*_: Any) -> None:
            handle.remove()
            products.__exit__(None, None, None)
            self.name = self._format_of(module, products.usual)

        # A program may go on after an error in a forward pass.
        handle = module.register_forward_hook(end, always_call=True)

    def _format_of(self, module: nn.Module, computed: torch.dtype | None) -> str:
        dtype = next(module.parameters()).dtype
        if computed is None and torch.is_autocast_enabled(self._device):
            computed = torch.get_autocast_dtype(self._device)
        if computed is not None and computed != dtype:
            return f"autocast {_name(computed)}"
        return "tf32" if self._device == "cuda" and dtype == torch.float32 and has_tf32() else _name(dtype)


class _Products(TorchFunctionMode):
    """Notes the number format of the products of one forward pass: autocast may be entered within the model."""

    def __init__(self) -> None:
        super().__init__()
        self._dtypes: Counter[torch.dtype] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _PRODUCTS:
            product = returned[0] if isinstance(returned, tuple) else returned
            self._dtypes[product.dtype] += 1
        return returned

    @property
    def usual(self) -> torch.dtype | None:
        """The format of most products; None without one."""
        return self._dtypes.most_common(1)[0][0] if self._dtypes else None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
