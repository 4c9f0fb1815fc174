"""Names that the documentation of version 0.1 gave, accepted with a warning for one release."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FORMER_MODULES = {
    "dmls_ray.errors": ("dmls_ray.util.errors", {}),
    "dmls_ray.analysis.reading": ("dmls_ray.analysis.summary.sweep_summary", {"read": "summarize"}),
}
"""Former name -> the module now, and the former names in it."""


class _FormerModules(MetaPathFinder, Loader):
    """Imports a module of today under its former name."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in FORMER_MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        name, renamed = FORMER_MODULES[module.__name__]
        warnings.warn(f"{module.__name__} is deprecated; use {name}.", DeprecationWarning, stacklevel=2)
        current = vars(importlib.import_module(name))
        vars(module).update({key: value for key, value in current.items() if not key.startswith("__")})
        vars(module).update({former: current[now] for former, now in renamed.items()})


def former_attribute(package: dict[str, Any], name: str, **formers: str) -> Any:
    """Return what a package offered under a former name. For the `__getattr__` of the package, given its `globals()`.

    Args:
        package: namespace in which the value is kept, so that the warning comes once.
        name: the attribute that was asked for.
        formers: former name -> the `module:name` that has it now.
    """
    if name not in formers:
        raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
    module, current = formers[name].split(":")
    warnings.warn(
        f"{package['__name__']}.{name} is deprecated; use {current} of {module}.", DeprecationWarning, stacklevel=3
    )
    package[name] = getattr(importlib.import_module(module), current)
    return package[name]


def accept_former_names() -> None:
    """Let imports find modules under their former names, after every module that exists."""
    sys.meta_path.append(_FormerModules())
