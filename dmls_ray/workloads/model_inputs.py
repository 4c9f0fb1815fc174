"""`ModelInputs`: what the models of training code are given, by hooks on the models that a look around finds."""

from __future__ import annotations

import gc
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dmls_ray.training.precision import has_tf32


class ModelInputs:
    """Samples and tokens that models are given in training, and the number format in which they compute.

    Args:
        on_begin: called when a model begins to compute.
        on_end: called when it has returned.
        on_test: called when a model that trains is given something without gradients, or in its mode of evaluation.
        device: type of the device.
    """

    def __init__(
        self, on_begin: Callable[[], None], on_end: Callable[[], None], on_test: Callable[[], None], device: str
    ) -> None:
        self._on_begin, self._on_end, self._on_test, self._device = on_begin, on_end, on_test, device
        self.is_paused = False
        """Whether models are given nothing new, as in a backward pass."""
        self.number_format = ""
        """In what the first model computed: `float32`, `tf32`, `autocast bfloat16`; empty where none was seen."""
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._samples: defaultdict[int, int] = defaultdict(int)
        self._tokens: defaultdict[int, int] = defaultdict(int)

    def find(self) -> None:
        """Look at the outermost models with parameters to train; not at compiled ones, which would compile the look."""
        # By the type: some objects of libraries answer with a warning when they are asked for their class.
        modules = [item for item in gc.get_objects() if issubclass(type(item), nn.Module)]
        inner = {id(child) for module in modules for child in module.children()}
        for module in modules:
            if id(module) in inner or module in self._models or module._compiled_call_impl is not None:
                continue
            if any(parameter.requires_grad for parameter in module.parameters()):
                self._models.add(module)
                module.register_forward_pre_hook(self._given, with_kwargs=True)
                module.register_forward_hook(self._returned)

    def take(self) -> tuple[int, int]:
        """Samples and tokens since the last call, of the model that had most."""
        most = max(self._samples.values(), default=0), max(self._tokens.values(), default=0)
        self._samples.clear()
        self._tokens.clear()
        return most

    def _given(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.is_paused or torch.compiler.is_compiling():
            return
        if not torch.is_grad_enabled():
            self._on_test()
            return
        if not module.training:
            self._on_test()
        self._on_begin()
        if not self.number_format:
            self.number_format = self._format_of(module)
        given = args or kwargs
        tensor = first_tensor(given)
        self._samples[id(module)] += samples_in(given, tensor)
        if tensor is not None and tensor.ndim == 2 and not tensor.is_floating_point():
            self._tokens[id(module)] += tensor.numel()

    def _returned(self, *_: Any) -> None:
        if torch.is_grad_enabled() and not self.is_paused and not torch.compiler.is_compiling():
            self._on_end()

    def _format_of(self, module: nn.Module) -> str:
        if torch.is_autocast_enabled(self._device):
            return f"autocast {_name(torch.get_autocast_dtype(self._device))}"
        dtype = next(module.parameters()).dtype
        return "tf32" if self._device == "cuda" and dtype == torch.float32 and has_tf32() else _name(dtype)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def samples_in(batch: Any, tensor: Tensor | None) -> int:
    """The samples of a batch: the length of its first tensor, or of its lists, where these are of equal length.

    Such lists have an image and a description for each sample, say, as models that detect objects take them.
    """
    if isinstance(batch, list | tuple) and len(batch) > 1 and isinstance(batch[0], list | tuple):
        lengths = {len(part) if isinstance(part, list | tuple) else 0 for part in batch}
        if len(lengths) == 1:
            return lengths.pop()
    return tensor.shape[0] if tensor is not None and tensor.ndim else 0


def first_tensor(value: Any) -> Tensor | None:
    """The first tensor in lists, tuples and mappings."""
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, list | tuple):
        if not callable(getattr(value, "values", None)):
            return None
        value = value.values()
    for item in value:
        tensor = first_tensor(item)
        if tensor is not None:
            return tensor
    return None
