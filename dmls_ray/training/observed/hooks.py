"""`hook`: a method that PyTorch calls in the user's program, which must not end by what looks at it."""

from __future__ import annotations

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
