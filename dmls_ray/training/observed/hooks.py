"""What PyTorch calls in the user's program, which must neither end by it nor find it in copies of its models."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any


def hook(method: Callable[..., None]) -> Callable[..., None]:
    """Let a method hand what it raises to `_note_fault` of its object."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any) -> None:
        try:
            method(self, *args)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a note
            self._note_fault(error)

    return guarded


class ModelHook:
    """A hook of a model, in whose place copies of the model and files with it have one that does nothing.

    Args:
        called: the hook.
    """

    def __init__(self, called: Callable[..., None]) -> None:
        self._called = called

    def __call__(self, *args: Any) -> None:
        self._called(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        # Of the standard library, since a file may be read where dmls_ray is not installed. It takes any arguments.
        return getattr, (contextlib.nullcontext(), "__exit__")
