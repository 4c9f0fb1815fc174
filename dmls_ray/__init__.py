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
    from dmls_ray.analysis.sweep_results import SweepResults as SweepResults
    from dmls_ray.analysis.sweep_results import load as load
    from dmls_ray.cluster.held_group import close as close
    from dmls_ray.config.axes import Range as Range
    from dmls_ray.config.options import Options as Options
    from dmls_ray.execution.planning import make_plan as make_plan
    from dmls_ray.execution.run_plan import sweep as sweep
    from dmls_ray.records.model import RunRecord as RunRecord
    from dmls_ray.records.outcome import Outcome as Outcome
    from dmls_ray.training.rank import RankInfo as RankInfo
    from dmls_ray.util.errors import ClusterLostError as ClusterLostError
    from dmls_ray.util.errors import DmlsRayError as DmlsRayError
    from dmls_ray.util.errors import InputError as InputError
    from dmls_ray.workloads.classification.config import TrialConfig as TrialConfig

_MODULES = {
    "ClusterLostError": "util.errors",
    "DmlsRayError": "util.errors",
    "InputError": "util.errors",
    "Options": "config.options",
    "Outcome": "records.outcome",
    "Range": "config.axes",
    "RankInfo": "training.rank",
    "RunRecord": "records.model",
    "SweepResults": "analysis.sweep_results",
    "TrialConfig": "workloads.classification.config",
    "close": "cluster.held_group",
    "load": "analysis.sweep_results",
    "make_plan": "execution.planning",
    "sweep": "execution.run_plan",
}
"""Public name -> the module that defines it."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dmls_ray' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dmls_ray.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
