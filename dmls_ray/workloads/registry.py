"""The registry of workloads: those of this package, and those of others that name the entry point group."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload

GROUP = "dmls_ray.workloads"
"""Entry point group in which other packages name their workloads."""

_BUILT_IN = {
    "grayscale": "dmls_ray.workloads.grayscale.workload:GrayscaleWorkload",
    "user_function": "dmls_ray.workloads.user_function.workload:UserFunctionWorkload",
    "classification": "dmls_ray.workloads.classification.workload:ClassificationWorkload",
}
"""Asked in this order which one a recorded configuration belongs to."""


@functools.cache
def workload(name: str) -> Workload:
    """The workload of this name.

    Raises:
        ConfigError: there is none.
    """
    known = _references()
    if name not in known:
        raise ConfigError(f"--workload {name}: unknown workload; installed are {', '.join(known)}.")
    module, _, attribute = known[name].partition(":")
    found: Workload = getattr(importlib.import_module(module), attribute)()
    return found


def workload_of(config: Mapping[str, Any]) -> Workload:
    """The workload that a recorded configuration belongs to.

    Raises:
        ConfigError: its workload is not installed.
    """
    if "workload" in config:
        return workload(str(config["workload"]))
    return next(item for item in map(workload, _BUILT_IN) if item.claims(config))


@functools.cache
def _references() -> dict[str, str]:
    """`module:Class` of every workload by its name."""
    return {point.name: point.value for point in entry_points(group=GROUP)} | _BUILT_IN
