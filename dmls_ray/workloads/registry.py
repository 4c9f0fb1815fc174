"""The registry of workloads: those of this package, and those of others that name the entry point group.

A package `workloads/<name>/` with a `workload.py` that defines `WORKLOAD` is a workload; no list names it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

from dmls_ray import workloads
from dmls_ray.records.metric import Metric
from dmls_ray.records.training_metrics import BY_NAME, is_loss
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.importing import import_function
from dmls_ray.workloads.base import Workload

GROUP = "dmls_ray.workloads"
"""Entry point group in which other packages name their workloads."""

DEFAULT = "classification"
"""Workload of a configuration that names none, as those of the first version."""

_USER_FUNCTION = "dmls_ray.workloads.user_function.workload:UserFunctionWorkload"
"""Workload of a configuration that names a training function in its entry `train`."""

_BUILT_IN = {
    package.name: f"{workloads.__name__}.{package.name}.workload:WORKLOAD"
    for package in pkgutil.iter_modules(workloads.__path__)
    if package.ispkg and package.name not in _USER_FUNCTION.split(".")
}


def workload(name: str) -> Workload:
    """Return the workload of this name.

    Raises:
        ConfigError: there is none.
    """
    return _class_of(name)()


def workload_of(config: Mapping[str, Any]) -> Workload:
    """Return the workload that a recorded configuration belongs to, of this version or an earlier one.

    Raises:
        ConfigError: its workload is not installed.
    """
    if "train" in config:
        return _of_function(str(config["train"]))
    return workload(str(config.get("workload", DEFAULT)))


def workload_of_function(train: str | Callable[..., Any], names: Iterable[str] = ()) -> Workload:
    """Return the workload that calls a training function.

    Args:
        train: `module:function`, or the function.
        names: the fields that the sweep gives, for a function whose configuration is a dict.
    """
    if isinstance(train, str) and (claimed := _built_in_of_function(train)) is not None:
        return claimed()
    # A user-defined function and its fields are known to this call alone.
    return _load(_USER_FUNCTION)(train, names)


def default_entrypoint() -> Callable[..., Any]:
    """Return the function that ranks call for a configuration without a workload; loads PyTorch."""
    return import_function(workload(DEFAULT).entrypoint, flag="workload")


@functools.cache
def references() -> dict[str, str]:
    """Return `module:Class` of every workload by its name, as `--workload` takes it.

    Tests clear this cache when they add a workload.
    """
    return {point.name: point.value for point in entry_points(group=GROUP)} | _BUILT_IN


def registered_metrics() -> Mapping[str, Metric]:
    """Return the metrics of all installed workloads by name."""
    return _metrics(tuple(references().items()))


def metric_is_minimized(name: str) -> bool:
    """Return whether less of a metric is better: by its entry; a metric without one is minimized if it is a loss."""
    metric = registered_metrics().get(name)
    return metric.direction == "min" if metric else is_loss(name)


@functools.cache
def _metrics(installed: tuple[tuple[str, str], ...]) -> Mapping[str, Metric]:
    metrics = {metric.name: metric for _, reference in installed for metric in _load(reference).metrics}
    return {**metrics, **BY_NAME}


def _class_of(name: str) -> type[Workload]:
    installed = references()
    if name not in installed:
        raise ConfigError(f"--workload {name}: unknown workload; installed are {', '.join(installed)}.")
    return _load(installed[name])


@functools.cache
def _of_function(train: str) -> Workload:
    return workload_of_function(train)


def _built_in_of_function(train: str) -> type[Workload] | None:
    """Return the workload of this package that recorded configurations name by a training function."""
    return next((item for name in _BUILT_IN if (item := _class_of(name)).claims({"train": train})), None)


@functools.cache
def _load(reference: str) -> type[Any]:
    module, _, attribute = reference.partition(":")
    loaded: type[Any] = getattr(importlib.import_module(module), attribute)
    return loaded
