"""The objectives of `dmls-ray advise`: one module each, found by name."""

from __future__ import annotations

import importlib
import pkgutil

from dmls_ray.analysis.advise.objective import Objective


def _found() -> dict[str, type[Objective]]:
    """The subclass of `Objective` that each module of this package defines, by its name."""
    objectives: dict[str, type[Objective]] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for item in vars(module).values():
            if isinstance(item, type) and issubclass(item, Objective) and item.__module__ == module.__name__:
                objectives[item.name] = item
    return objectives


OBJECTIVES = _found()
