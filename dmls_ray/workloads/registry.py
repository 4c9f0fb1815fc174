"""The registry of workloads: those of this package, and those of others that name the entry point group.

A package `workloads/<name>/` with a `workload.py` that defines `WORKLOAD` is a workload; no list names it.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dmls_ray import workloads
from dmls_ray.config.fields import field_specs
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.metrics import BY_NAME, Direction, Metric, is_loss
from dmls_ray.records.stale import FIELD as CODE_FIELD
from dmls_ray.util.errors import ConfigError, InputError
from dmls_ray.util.importing import import_function
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.command.workload import CommandWorkload
from dmls_ray.workloads.script.workload import ScriptWorkload
from dmls_ray.workloads.user_function.schema import UserFunctionWorkload

_RESERVED_FIELDS = ("train", "workload", CODE_FIELD)
"""Keys that name the workload of a recorded configuration and its code; no field may have one of these names."""

GROUP = "dmls_ray.workloads"
"""Entry point group in which other packages name their workloads."""

DEFAULT = "classification"
"""Workload of a configuration that names none, as those of the first version."""

_BUILT_IN = {
    package.name: EntryPoint(package.name, f"{workloads.__name__}.{package.name}.workload:WORKLOAD", GROUP)
    for package in pkgutil.iter_modules(workloads.__path__)
    if package.ispkg and package.name != "user_function"
}


def workload(name: str) -> Workload:
    """Return the workload of this name.

    Raises:
        ConfigError: there is none, or it has a mistake.
    """
    if name not in installed():
        raise ConfigError(f"--workload {name}: unknown workload; installed are {', '.join(installed())}.")
    return _class_of(installed()[name])()


def workload_of(config: Mapping[str, Any]) -> Workload:
    """Return the workload that a recorded configuration belongs to, of this version or an earlier one.

    Raises:
        ConfigError: its workload is not installed, or has a mistake.
    """
    if "train" in config:
        return workload_of_function(str(config["train"]))
    return workload(str(config.get("workload", DEFAULT)))


def workload_of_function(train: str | Callable[..., Any], names: Iterable[str] = ()) -> Workload:
    """Return the workload that calls a training function.

    Args:
        train: `module:function`, or the function.
        names: the fields that the sweep gives, for a function whose configuration is a dict.
    """
    if isinstance(train, str):
        for point in _BUILT_IN.values():
            if _class_of(point).fixed == {"train": train}:
                return _class_of(point)()
    return UserFunctionWorkload(train, names)


def workload_of_script(script: str, arguments: Sequence[str] = (), **given: Any) -> Workload:
    """Return the workload that runs a script.

    Args:
        script: its path.
        arguments: those that it has in every run.
        given: further arguments of `ScriptWorkload`.
    """
    return ScriptWorkload(script, arguments, **given)


def workload_of_command(words: Sequence[str], **given: Any) -> Workload:
    """Return the workload that runs a command.

    Args:
        words: its command line.
        given: further arguments of `CommandWorkload`.
    """
    return CommandWorkload(words[0], words[1:], **given)


@functools.cache
def installed() -> Mapping[str, EntryPoint]:
    """Return the entry point of each workload by its name; that of dmls_ray goes before one of another package.

    Tests clear this cache, and that of `registered_metrics`, when they add a workload.
    """
    others = {point.name: point for point in entry_points(group=GROUP)}
    return {**_BUILT_IN, **others, **_BUILT_IN}


def workload_classes() -> Sequence[type[Workload]]:
    """Return the classes of all installed workloads.

    Raises:
        ConfigError: one has a mistake.
    """
    return [_class_of(point) for point in installed().values()]


@functools.cache
def registered_metrics() -> Mapping[str, Metric]:
    """Return the metrics of all installed workloads by name."""
    return {**{metric.name: metric for item in workload_classes() for metric in item.metrics}, **BY_NAME}


def is_compared(name: str) -> bool:
    """Return whether answers compare trials by a metric: by its entry; always by one without an entry, which only a
    user's function reports.
    """
    metric = registered_metrics().get(name)
    return metric is None or metric.is_compared


def metric_direction(name: str) -> Direction:
    """Return what is better of a metric: by its entry, else by its name if that is a loss or an accuracy."""
    metric = registered_metrics().get(name)
    if metric:
        return metric.direction
    if is_loss(name):
        return "min"
    return "max" if name.endswith("accuracy") else "none"


@functools.cache
def _class_of(point: EntryPoint) -> type[Workload]:
    """Load the workload of an entry point.

    Raises:
        ConfigError: it has a mistake.
    """
    if point in _BUILT_IN.values():
        built_in: type[Workload] = pkgutil.resolve_name(point.value)
        return built_in
    package = point.dist.name if point.dist else "an unknown package"
    where = f"workload {point.name} of the installed package {package}, entry point {point.name}={point.value}"
    try:
        plugin: Any = import_function(point.value, flag=point.name)
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from error
    is_workload = isinstance(plugin, type) and issubclass(plugin, Workload)
    if not is_workload or getattr(plugin, "name", None) != point.name:
        raise ConfigError(f"{where}: it is no class of this name that extends dmls_ray.workloads.base.Workload.")
    config = getattr(plugin, "config", object)
    if not issubclass(config, RuntimeConfig) or not field_specs(config).keys().isdisjoint(_RESERVED_FIELDS):
        raise ConfigError(f"{where}: its config has to extend RuntimeConfig, without the fields {_RESERVED_FIELDS}.")
    loaded: type[Workload] = plugin
    return loaded
