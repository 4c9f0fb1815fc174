"""`FlopCounter`: the floating-point operations of a training step, by the formulas of PyTorch's counter.

Products count: matrix products, convolutions and attention, two operations for each multiplication with its addition.
Elementwise work, norms and reductions do not, as in the published accounts (arXiv 2204.02311, appendix B). Attention
counts its whole matrix of scores, also under a causal mask.

Two sums are kept, by number format. The operations of the *model* are those of its forward and backward passes. Those
of the *hardware* include what is computed again in a backward pass, and what optimizers compute.

`torch.utils.flop_counter.FlopCounterMode` itself is not used. It hooks every module of the process, gives
higher-order operators of the program no result, and tells neither recomputation nor what it has no formula for.
In PyTorch 2.14 its formulas miss attention on the CPU and count the gradients of grouped convolutions too high, which
`_FORMULAS` corrects.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from dmls_ray.training.compat import DispatchMode, is_computed_again

_aten = torch.ops.aten

_PRODUCTS = {
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "matmul", "matrix", "linear", "bilinear", "trilinear", "einsum", "cdist",
    "conv", "conv1d", "conv2d", "conv3d", "convolution", "lstm", "gru", "rnn", "encoder", "attention", "euclidean",
}  # fmt: skip
"""Words in the names of PyTorch's operators for products."""

_OF_NO_PRODUCTS = {"aten", "prim", "prims", "c10d", "_c10d_functional", "fsdp", "profiler"}
"""Namespaces of operators that, without such a word, compute no products. Any other is a library's."""

_PLAIN = (Tensor, nn.Parameter)
"""Types of tensors that have no other way to compute."""

_ELEMENTWISE = ("_thnn_fused", "_cudnn_rnn_flatten", "_use_cudnn_rnn_flatten")
"""Begin of the names of operators of recurrent networks that compute no products."""


def _convolution_backward(gradient: Any, given: Any, weight: Any, *others: Any, out_val: Any) -> int:
    """Each gradient of a convolution has the products of the convolution itself, of each group alone."""
    transposed, mask = others[4], others[7]
    positions = (given if transposed else gradient).shape
    products = 2 * positions[0] * math.prod(positions[2:]) * math.prod(weight.shape)
    return products * sum(mask[:2])


def _matrix_by_vector(*operands: Any, out_val: Any, **_: Any) -> int:
    return 2 * max(tensor.numel() for tensor in operands if isinstance(tensor, Tensor))


_ATTENTION_BACKWARD = flop_registry[_aten._scaled_dot_product_flash_attention_backward]
_FORMULAS: Mapping[Any, Callable[..., int]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[_aten._scaled_dot_product_flash_attention],
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _ATTENTION_BACKWARD,
    _aten.convolution_backward: _convolution_backward,
    _aten.addmm_: flop_registry[_aten.addmm],
    _aten.baddbmm_: flop_registry[_aten.baddbmm],
    **dict.fromkeys((_aten.mv, _aten.addmv, _aten.dot, _aten.vdot), _matrix_by_vector),
}
"""Operations of operators that PyTorch's registry lacks or counts wrongly; they are given the tensors."""


class FlopCounter(DispatchMode):
    """Counts what runs while it is entered, in this thread and in backward passes that begin in it.

    What runs has the same results. An error in counting is a reason in `unseen`, and ends nothing.
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile work as ever: by default, a function with `fullgraph=True` fails within a mode."""
        return True

    def __init__(self) -> None:
        super().__init__()
        self.unseen = ""
        """The first reason why operations were done that are not counted; empty if all were seen."""
        self.in_optimizer = False
        """Whether an optimizer makes a step."""
        self.model: Counter[torch.dtype] = Counter()
        """The operations so far, by number format, without optimizers and without what is computed again."""
        self.hardware: Counter[torch.dtype] = Counter()
        """All operations so far, by number format."""
        self._unfilled: set[int] = set()
        """Addresses of memory that was allocated and that no operator has written to."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        try:
            self._add(func, args, kwargs or {}, returned)
        except Exception as error:  # noqa: BLE001 - the program must not end by its observer
            self._miss(f"counting {func} failed ({type(error).__name__}: {error})".splitlines()[0])
        return returned

    def _miss(self, reason: str) -> None:
        self.unseen = self.unseen or reason

    def _add(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], returned: Any) -> None:
        if not isinstance(func, torch._ops.OpOverload):
            self._miss(f"{func} is a higher-order operator")
            return
        self._follow_memory(func, args, kwargs, returned)
        packet = func.overloadpacket
        formula = _FORMULAS.get(packet) or flop_registry.get(packet)
        if formula is None:
            if reason := _without_formula(func):
                self._miss(reason)
            return
        if other := _other_kind([*args, *kwargs.values()]):
            self._miss(f"{func} is computed on {other}, whose part in this rank is not known")
            return
        first = next(leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor))
        dtype = first.dtype
        if first.is_meta or not (dtype.is_floating_point or dtype.is_complex):
            return  # nothing is computed, or integers are
        if self.in_optimizer and torch.is_grad_enabled():
            self._miss("an optimizer's step computes the model, by a closure")
        count = formula(*args, **kwargs, out_val=returned)
        self.hardware[dtype] += count
        if self.in_optimizer or is_computed_again():
            return
        if "attention" in func.name() and "backward" in func.name():
            count = _without_scores(count, *args[1:4])
        self.model[dtype] += count

    def _follow_memory(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], returned: Any) -> None:
        """Note a kernel that no operator calls, as a library's own: it leaves memory filled that no operator wrote."""
        name = func.overloadpacket.__name__
        gives_memory = name.startswith(("empty", "new_empty"))
        reads = not gives_memory and not func.is_view and not name.endswith("_like") and not name.startswith("new_")
        for place, argument in enumerate(func._schema.arguments):
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            addresses = _addresses(given) & self._unfilled
            # Collectives do not say what they write.
            if func.namespace != "aten" or (argument.alias_info is not None and argument.alias_info.is_write):
                self._unfilled -= addresses
            elif addresses and reads:
                self._miss("a kernel that is no operator of PyTorch fills tensors")
        if gives_memory:
            self._unfilled |= _addresses(returned)
        elif reads:
            self._unfilled -= _addresses(returned)  # an address that was freed, and is used again


def _addresses(values: Any) -> set[int]:
    """Of the memory of tensors; not of integers, in which PyTorch's own C++ code keeps its lists.

    Tensors without memory, as those that FSDP2 has freed, have the address 0.
    """
    plain = [leaf for leaf in tree_leaves(values) if type(leaf) in _PLAIN and leaf.layout == torch.strided]
    return {leaf.untyped_storage().data_ptr() for leaf in plain if leaf.is_floating_point()} - {0}


def _without_scores(count: int, query: Tensor, _: Tensor, value: Tensor) -> int:
    """The operations of a fused attention's backward pass without those that compute the scores again.

    It has five products: scores, and the gradients of scores, values, queries and keys. Three of them are over the
    width of a query, two over that of a value.
    """
    q, v = query.shape[-1], value.shape[-1]
    return count * (2 * q + 2 * v) // (3 * q + 2 * v)


def _without_formula(func: Any) -> str:
    """Why an operator without a formula may compute products; empty if it computes none."""
    namespace, _, name = func.name().partition("::")
    base = name.partition(".")[0]
    if namespace not in _OF_NO_PRODUCTS:
        return f"{namespace}::{base} has no formula; register one by torch.utils.flop_counter.register_flop_formula"
    if base.startswith(_ELEMENTWISE) or _PRODUCTS.isdisjoint(re.split("_+", base)):
        return ""
    return f"PyTorch has no formula for {namespace}::{base}"


def _other_kind(values: Sequence[Any]) -> str:
    """The type of a tensor that is not a dense one of this rank alone; empty if all are dense."""
    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor) and (type(leaf) not in _PLAIN or leaf.layout != torch.strided):
            return f"a {type(leaf).__name__} of layout {leaf.layout}"
    return ""
