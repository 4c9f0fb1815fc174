"""`ModelInputs`: what models are given for each backward pass of a training."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from dmls_ray.training.compat import next_node, nodes_in_graph
from dmls_ray.training.observed.contents import Content, has_rows_twice
from dmls_ray.training.observed.given import Given, Input, input_of, together

_COMPARED = 3
"""Tensors whose rows are compared."""


class ModelInputs:
    """What models are given in forward passes, and which backward passes are of it."""

    def __init__(self) -> None:
        self._kinds: dict[Any, Input] = {}
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

    @property
    def is_given(self) -> bool:
        """Whether something was given since the last backward pass, and since a batch was read."""
        return self._given is not None

    def forward_began(self, module: nn.Module, content: Content, *, is_list: bool) -> None:
        """A model begins a forward pass with gradients.

        Args:
            module: the model.
            content: of what it is given.
            is_list: whether its first argument is a list or a tuple.
        """
        leaves = content.leaves
        tensor = leaves[0] if leaves and isinstance(leaves[0], Tensor) else None
        is_again = tensor is not None and self._is_known(tensor)
        if is_again and self._given is not None:
            return
        kind = (id(module), is_list, *content.lengths, *[(leaf.shape, getattr(leaf, "dtype", None)) for leaf in leaves])
        input_ = self._kinds.get(kind)
        if input_ is None:
            input_ = self._kinds[kind] = input_of(content, is_list=is_list)
            _note_rows(module, input_)
        if self._given is not None:
            self._given.inputs.append(input_)
            return
        self._given = Given([input_], is_again)
        if self._compared < _COMPARED and tensor is not None:
            self._compared += 1
            self._given.has_rows_twice = has_rows_twice(tensor)

    def batch_read(self) -> None:
        """A batch was read: what was given before it may never be trained on."""
        if self._given is not None:
            self._given.end = next_node()
            self._earlier.append(self._given)
            self._given = None

    def backward_began(self, roots: Sequence[Tensor] = ()) -> tuple[Given | None, list[Given]]:
        """A backward pass begins, or a step ends without any.

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
            last = self._last
            if given is None and last is not None and any(node < last.end for node in nodes_in_graph(roots)):
                given = replace(last, is_again=True)  # a further backward pass of the same forward pass
            self._last = given
            return given, []
        waiting = [*self._earlier, *([] if given is None else [given])]
        self._earlier = []
        places = {*range(len(waiting))}
        if len(waiting) > 1 and roots:
            ends = [given.end for given in waiting]
            places &= {bisect_right(ends, node) for node in nodes_in_graph(roots)}
        self._last = together([waiting[place] for place in sorted(places)])
        return self._last, [given for place, given in enumerate(waiting) if place not in places]

    def test_ended(self) -> None:
        """What was given in it was of no training."""
        self._earlier, self._given = [], None

    def step_ended(self) -> None:
        """The step under way has ended: the next one may be given the same again."""
        self._tensors.clear()
        self._last = None

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


def _note_rows(module: nn.Module, input_: Input) -> None:
    """Let an input have the rows that the model returns in the forward pass that begins."""

    def end(_module: nn.Module, _args: Any, returned: Any) -> None:
        handle.remove()
        if isinstance(returned, Tensor) and returned.ndim:
            input_.rows = len(returned)

    handle = module.register_forward_hook(end, always_call=True)
