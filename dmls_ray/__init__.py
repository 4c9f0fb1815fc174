"""Parallel sweeps of distributed data-parallel training on Ray: what do batch size, world size and the rest do?

    >>> from dmls_ray import sweep, load
    >>> results = sweep({"batch_per_rank": [16, 32], "world_size": [1, 2]}, repeats=3)  # doctest: +SKIP
    >>> results = load("results/batch_size")  # doctest: +SKIP

Importing this package loads neither PyTorch nor Ray; the names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmls_ray.analysis.frames import Results, load
    from dmls_ray.config import TrialConfig
    from dmls_ray.errors import DmlsRayError, InputError
    from dmls_ray.plan import make_plan
    from dmls_ray.rank import RankInfo
    from dmls_ray.record import Outcome, RunRecord
    from dmls_ray.runner import sweep
    from dmls_ray.space import Range

_HOMES = {
    "DmlsRayError": "errors",
    "InputError": "errors",
    "Outcome": "record",
    "Range": "space",
    "RankInfo": "rank",
    "Results": "analysis.frames",
    "RunRecord": "record",
    "TrialConfig": "config",
    "load": "analysis.frames",
    "make_plan": "plan",
    "sweep": "runner",
}

__all__ = [
    "DmlsRayError",
    "InputError",
    "Outcome",
    "Range",
    "RankInfo",
    "Results",
    "RunRecord",
    "TrialConfig",
    "load",
    "make_plan",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dmls_ray' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dmls_ray.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
