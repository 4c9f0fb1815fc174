"""The objectives of `dmls-ray advise`: one module each, found by name."""

from __future__ import annotations

import importlib
import pkgutil

from dmls_ray.analysis.advise.objective import Objective

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

OBJECTIVES = {kind.name: kind for kind in Objective.__subclasses__()}
