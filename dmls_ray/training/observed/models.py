"""`Models`: the models of a program, which a look around finds."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator

from torch import Tensor, nn

from dmls_ray.training.observed.hooks import ModelHook


class Models:
    """The outermost models with parameters to train; not compiled ones, which would compile the look.

    Args:
        forward_began: called when one of them is given something, with the model, the arguments and those by name.
    """

    def __init__(self, forward_began: Callable[..., object]) -> None:
        self._forward_began = forward_began
        self._found: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._counted: set[int] = set()
        """Parameters and buffers that were counted, by their ids."""
        self.parameters = 0
        """Elements of the trainable parameters of the models that were found."""
        self.buffers = 0
        """Elements of their buffers."""
        self.has_sequences_first = False
        """Whether a model has a part that takes sequences as length x batch."""
        self.has_compiled = False
        """Whether a model was to be compiled."""

    def find(self, *, is_first: bool) -> list[nn.Module]:
        """Look around.

        Args:
            is_first: whether the training has just begun. Models that are made later, as for a test of features or for
                each fold, do not count among its parameters.

        Returns:
            A module within each new one that has parameters itself, and so the mode of its model.
        """
        # By the type: some objects of libraries answer with a warning when they are asked for their class.
        modules = [item for item in gc.get_objects() if issubclass(type(item), nn.Module)]
        inner = {id(child) for module in modules for child in module.children()}
        owners = []
        for module in modules:
            self.has_compiled = self.has_compiled or is_compiled(module)
            if id(module) in inner or module in self._found or module._compiled_call_impl is not None:
                continue
            trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
            if not trained:
                continue
            self._found.add(module)
            if is_first:
                self.parameters += self._elements_of(trained)
                self.buffers += self._elements_of(module.buffers())
            for part in module.modules():
                self.has_sequences_first |= getattr(part, "batch_first", True) is False
            owners += [part for part in module.modules() if part.training and _has_parameters(part)][:1]
            module.register_forward_pre_hook(ModelHook(self._forward_began), with_kwargs=True)
            for wrapped in _wrapped_by(module):
                wrapped.register_forward_pre_hook(ModelHook(self._wrapped_began))
        return owners

    def _elements_of(self, tensors: Iterable[Tensor]) -> int:
        """The elements of tensors that were not counted before: models share some."""
        others = [tensor for tensor in tensors if id(tensor) not in self._counted]
        self._counted |= {id(tensor) for tensor in others}
        return sum(tensor.numel() for tensor in others)

    def _wrapped_began(self, module: nn.Module, args: tuple[object, ...]) -> None:
        """What a wrapper holds, as DDP does a model, is tested without it."""
        if not module.training:
            self._forward_began(module, args, {})


def is_compiled(module: nn.Module) -> bool:
    """Whether a module was to be compiled."""
    return module._compiled_call_impl is not None or "_orig_mod" in module._modules


def _wrapped_by(module: nn.Module) -> Iterator[nn.Module]:
    """What a module holds that has nothing else, and no parameters of its own; nothing within a compiled one, whose
    graph would contain the look.
    """
    while not _has_parameters(module) and not is_compiled(module):
        children = [*module.children()]
        if len(children) != 1 or is_compiled(children[0]):
            return
        (module,) = children
        yield module


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(recurse=False), None) is not None
