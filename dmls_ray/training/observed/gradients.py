"""`Gradients`: whether those of a backward pass are thrown away before any optimizer applies them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor
from torch.optim import Optimizer

_LOOKED_AT = 64
"""Parameters that are looked at for one with a gradient."""
_LOOKED_AFTER = 3
"""Backward passes that are looked at in any case."""


class Gradients:
    """The gradients of the parameters that optimizers have.

    A program throws gradients away if it leaves out a batch whose gradients are too large or not finite, as a scaler
    of losses does.
    """

    def __init__(self) -> None:
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._parameter: weakref.ref[Tensor] | None = None
        """One that has a gradient of the last backward pass."""
        self._version = 0
        """Of its gradient, which each change in place raises."""
        self._passes = 0
        self._is_asked = False

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Look at the parameters of this optimizer, too."""
        self._optimizers.add(optimizer)

    def backward_ended(self) -> None:
        """A backward pass has ended."""
        # Most programs have one backward pass a step, and never ask.
        if self._passes >= _LOOKED_AFTER and not self._is_asked:
            return
        self._passes += 1
        parameter = self._kept()
        if parameter is None or parameter.grad is None:
            with_gradient = (item for item in islice(self._parameters(), _LOOKED_AT) if item.grad is not None)
            parameter = next(with_gradient, None)
            self._parameter = None if parameter is None else weakref.ref(parameter)
        if parameter is not None and parameter.grad is not None:
            self._version = parameter.grad._version

    def are_gone(self) -> bool:
        """Whether the gradients of the last backward pass are no longer there: none, or zero."""
        parameter, is_first = self._kept(), not self._is_asked
        self._is_asked = True
        if parameter is None:
            return False
        if parameter.grad is not None and parameter.grad._version == self._version and not is_first:
            return False
        for item in self._parameters():
            # A gradient that is no plain tensor is there in any case.
            if item.grad is not None and (item.grad.layout is not torch.strided or bool(item.grad.any())):
                return False
        return True

    def _kept(self) -> Tensor | None:
        return None if self._parameter is None else self._parameter()

    def _parameters(self) -> Iterator[Tensor]:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]
