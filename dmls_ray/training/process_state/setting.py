"""`Setting`: something of a process, or of a thread, that can be read and set back exactly."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One setting."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    comparable: bool = True
    """Whether `!=` distinguishes two values; if not, the value is set back after every run."""


def attributes(owner: Any, *names: str, prefix: str = "") -> Iterator[Setting]:
    """Attributes of a module, a class or an object that are settings; this version of a library may lack some."""
    for name in names:
        if hasattr(owner, name):
            yield Setting(
                f"{prefix}{name}", functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)
            )


def contents(name: str, owner: Any, attribute: str) -> Setting:
    """The contents of a list that is an attribute."""

    def write(items: list[Any]) -> None:
        getattr(owner, attribute)[:] = items

    return Setting(name, lambda: list(getattr(owner, attribute)), write)
