"""`ModelInputs`: what the models of training code are given, by hooks on the models that a look around finds."""

from __future__ import annotations

import gc
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dmls_ray.training.compat import is_transformed, next_node, nodes_in_graph
from dmls_ray.training.observed.contents import Content, content_of, has_rows_twice
from dmls_ray.training.observed.given import Given, Input, input_of, together
from dmls_ray.training.observed.hooks import ModelHook
from dmls_ray.training.precision import has_tf32

_PRODUCTS = {
    "linear",
    "matmul",
    "__matmul__",
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "einsum",
    "scaled_dot_product_attention",
}
_PRODUCTS |= {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
_PRODUCTS |= {"scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu"}
"""Functions of PyTorch that compute in the number format of a model."""
_COMPARED = 3
"""Tensors whose rows are compared."""


class ModelInputs:
    """What models are given in training, and the number format in which they compute.

    Args:
        on_begin: called when a model is given something, with whether gradients are recorded, and the tensors of what
            it is given.
        on_fault: takes an error in looking at what a model is given, which must not end the program.
        device: type of the device.
    """

    def __init__(
        self,
        on_begin: Callable[[bool, list[Any]], object],
        on_fault: Callable[[Exception], object],
        device: str,
    ) -> None:
        self._on_begin, self._on_fault, self._device = on_begin, on_fault, device
        self.is_paused = False
        """Whether models are given nothing new, as in a backward pass."""
        self.number_format = ""
        """In what the first model computed: `float32`, `tf32`, `autocast bfloat16`; empty where none was seen."""
        self.has_sequences_first = False
        """Whether a model has a part that takes sequences as length x batch."""
        self.has_compiled = False
        """Whether a model was to be compiled."""
        self.parameters = self.buffers = 0
        """Elements of the trainable parameters, and of the buffers, of the models that were found."""
        self._counted: set[int] = set()
        """Parameters and buffers that were counted, by their ids."""
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._inputs: dict[Any, Input] = {}
        """Each kind of input, by what makes it up."""
        self._given: Given | None = None
        """Of the backward pass that comes next, since a batch was read."""
        self._earlier: list[Given] = []
        """What was given before that batch was read, and was in no backward pass."""
        self._last: Given | None = None
        """Of the backward pass before, within the step under way."""
        self._tensors: list[tuple[weakref.ref[Tensor], Any]] = []
        """The first tensors of the step under way, or what they are views of, and which part of them."""
        self._compared = 0
        """Tensors whose rows were compared, which waits for the device."""
        self._products: _Products | None = None

    def find(self, *, is_first: bool = True) -> list[nn.Module]:
        """Look at the outermost models with parameters to train; not at compiled ones, which would compile the look.

        Args:
            is_first: whether the training has just begun. Models that are made later, as for a test of features or for
                each fold, do not count among its parameters.

        Returns:
            A module within each new one that has parameters itself, and so the mode of its model.
        """
        # By the type: some objects of libraries answer with a warning when they are asked for their class.
        modules = [item for item in gc.get_objects() if issubclass(type(item), nn.Module)]
        self.has_compiled = self.has_compiled or any(map(_is_compiled, modules))
        inner = {id(child) for module in modules for child in module.children()}
        owners = []
        for module in modules:
            if id(module) in inner or module in self._models or module._compiled_call_impl is not None:
                continue
            trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
            if not trained:
                continue
            self._models.add(module)
            if is_first:
                self.parameters += self._elements_of(trained)
                self.buffers += self._elements_of(module.buffers())
            self.has_sequences_first |= any(getattr(part, "batch_first", True) is False for part in module.modules())
            owners += [part for part in module.modules() if part.training and _has_parameters(part)][:1]
            module.register_forward_pre_hook(ModelHook(self._begin), with_kwargs=True)
            for wrapped in _wrapped_by(module):
                wrapped.register_forward_pre_hook(ModelHook(self._begin_evaluation))
        return owners

    def _elements_of(self, tensors: Iterable[Tensor]) -> int:
        """The elements of tensors that were not counted before: models share some."""
        others = [tensor for tensor in tensors if id(tensor) not in self._counted]
        self._counted |= {id(tensor) for tensor in others}
        return sum(tensor.numel() for tensor in others)

    @property
    def has_models(self) -> bool:
        """Whether a model was found."""
        return bool(self.parameters)

    @property
    def is_given(self) -> bool:
        """Whether something was given since the last backward pass, and since a batch was read."""
        return self._given is not None

    def read(self) -> None:
        """A batch was read: what was given before it may never be trained on."""
        if self._given is not None:
            self._given.end = next_node()
            self._earlier.append(self._given)
            self._given = None

    def take(self, roots: Sequence[Tensor] = ()) -> tuple[Given | None, list[Given]]:
        """What was given since the last call.

        Args:
            roots: what a backward pass begins with; empty where it is not known.

        Returns:
            What the backward pass is of; None if nothing was given. And what was given in forward passes that it is
            not of, before another batch was read.
        """
        given, self._given = self._given, None
        if given is not None:
            given.end = next_node()
        if not self._earlier:
            self._last = given or self._again(roots)
            return self._last, []
        waiting = [*self._earlier, *([] if given is None else [given])]
        self._earlier = []
        places = {*range(len(waiting))}
        if len(waiting) > 1 and roots:
            ends = [given.end for given in waiting]
            places &= {bisect_right(ends, node) for node in nodes_in_graph(roots)}
        self._last = together([waiting[place] for place in sorted(places)])
        return self._last, [given for place, given in enumerate(waiting) if place not in places]

    def _again(self, roots: Sequence[Tensor]) -> Given | None:
        """What the backward pass before was of, if this one is a further one of the same forward pass; else None."""
        last = self._last
        if last is None or not any(node < last.end for node in nodes_in_graph(roots)):
            return None
        return replace(last, is_again=True)

    def drop(self) -> None:
        """What was given was of no training."""
        self._earlier, self._given = [], None

    def end_step(self) -> None:
        """The step under way has ended: the next one may be given the same again."""
        self._tensors.clear()
        self._last = None

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.is_paused or torch.compiler.is_compiling() or is_transformed():
            return
        try:
            content = content_of(args[0] if len(args) == 1 and not kwargs else (*args, *kwargs.values()))
            with_gradients = torch.is_grad_enabled()
            self._on_begin(with_gradients, content.leaves)
            if not with_gradients:
                return
            if self._products is None and not self.number_format:
                self._watch_products(module)
            self._take_note(module, content, is_list=bool(args) and isinstance(args[0], list | tuple))
        except Exception as error:  # noqa: BLE001 - what users give to models may be anything
            self._on_fault(error)

    def _begin_evaluation(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """What a wrapper holds, as DDP does a model, is tested without it."""
        if not module.training and not torch.compiler.is_compiling():
            self._begin(module, args, {})

    def _take_note(self, module: nn.Module, content: Content, *, is_list: bool) -> None:
        leaves = content.leaves
        tensor = leaves[0] if leaves and isinstance(leaves[0], Tensor) else None
        is_again = tensor is not None and self._is_known(tensor)
        if is_again and self._given is not None:
            return
        kind = (id(module), is_list, *content.lengths, *[(leaf.shape, getattr(leaf, "dtype", None)) for leaf in leaves])
        input_ = self._inputs.get(kind)
        if input_ is None:
            input_ = self._inputs[kind] = input_of(content, is_list=is_list)
            _note_rows(module, input_)
        if self._given is not None:
            self._given.inputs.append(input_)
            return
        self._given = Given([input_], is_again)
        if self._compared < _COMPARED and tensor is not None:
            self._compared += 1
            self._given.has_rows_twice = has_rows_twice(tensor)

    def _is_known(self, tensor: Tensor) -> bool:
        """Whether the step was given this tensor before; it is known from now on."""
        base = tensor._base
        whole = tensor if base is None else base
        try:
            version = tensor._version
        except RuntimeError:  # of a tensor of inference mode, which has none
            version = 0
        part = version if base is None else (tensor.storage_offset(), tensor.shape, version)
        for reference, known in self._tensors:
            if reference() is whole and known == part:
                return True
        self._tensors.append((weakref.ref(whole), part))
        return False

    def _watch_products(self, module: nn.Module) -> None:
        parts = [*module.modules()]
        if any(map(_is_compiled, parts)):
            self.number_format = self._format_of(module, None)
            return
        products = self._products = _Products()
        products.__enter__()

        def end(*_: Any) -> None:
            handle.remove()
            products.__exit__(None, None, None)
            self.number_format = self._format_of(module, products.usual)

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


def _note_rows(module: nn.Module, input_: Input) -> None:
    """Let an input have the rows that the model returns in the forward pass that begins."""

    def end(_module: nn.Module, _args: Any, returned: Any) -> None:
        handle.remove()
        if isinstance(returned, Tensor) and returned.ndim:
            input_.rows = len(returned)

    handle = module.register_forward_hook(end, always_call=True)


def _wrapped_by(module: nn.Module) -> Iterator[nn.Module]:
    """What a module holds that has nothing else, and no parameters of its own; nothing within a compiled one, whose
    graph would contain the look.
    """
    while not _has_parameters(module) and not _is_compiled(module):
        children = [*module.children()]
        if len(children) != 1 or _is_compiled(children[0]):
            return
        (module,) = children
        yield module


def _is_compiled(module: nn.Module) -> bool:
    return module._compiled_call_impl is not None or "_orig_mod" in module._modules


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(recurse=False), None) is not None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
