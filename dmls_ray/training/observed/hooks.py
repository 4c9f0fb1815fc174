"""What PyTorch calls in the user's program, which must neither end by it nor find it in copies of its models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch


class Faults:
    """Errors in looking at a program, none of which ends it."""

    def __init__(self) -> None:
        self.first = ""
        """The first one; empty without any."""

    def guarded(self, hook: Callable[..., object]) -> Callable[..., None]:
        """A hook whose errors are noted."""

        def call(*args: Any, **kwargs: Any) -> None:
            try:
                hook(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a note
                self.first = self.first or f"{type(error).__name__}: {error}"

        return call


class ModelHook:
    """A hook of a model, in whose place copies of the model and files with it have one that does nothing.

    Args:
        called: the hook.
    """

    def __init__(self, called: Callable[..., object]) -> None:
        self._called = called

    def __call__(self, *args: Any) -> None:
        # A graph of the compiler has nothing of it.
        if not torch.compiler.is_compiling():
            self._called(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        # Of the standard library, since a file may be read where dmls_ray is not installed. It takes any arguments.
        return getattr, (contextlib.nullcontext(), "__exit__")
