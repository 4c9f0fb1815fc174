"""`sweep`, the public function that runs a sweep. `analysis.results.load` is the other one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.config.fields import field_specs
from dmls_ray.config.options import Options
from dmls_ray.execution.planning import folder_name, plan_sweep
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.execution.view import PlainView, ProgressConsole
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.importing import is_importing
from dmls_ray.util.text import did_you_mean
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload

Axes = Mapping[str, Any]


def sweep(
    train_or_axes: str | Callable[..., Any] | Axes | None = None,
    axes: Axes | None = None,
    /,
    *,
    workload: str | None = None,
    **options: Any,
) -> Results:
    """Run every configuration of a grid that its results folder does not hold yet.

    ``sweep(axes)`` trains image classifiers. ``sweep(train, axes)`` calls a user-defined training function.
    ``sweep(axes, workload="NAME")`` runs a workload of another package.

    Args:
        train_or_axes: `train(config, rank, emit)`, or its name, `module:function`; or the axes of a workload.
        axes: field -> one value, or a sequence of values. The fields are those of `TrialConfig`, of which
            batch_per_rank or global_batch must be given; or those of the function's or the workload's configuration,
            and world_size, machines, ranks_per_machine, backend, launcher, device, threads_per_rank and seed.
            model may be a function or class, dataset one that returns the samples of a split, or a dict of those of
            "train" and "test".
        workload: Name of an installed workload; classification by default.
        **options: The fields of `Options`, which are the flags of a sweep, too: repeats=5, out="results/mine",
            budget="20m", ... `help(dmls_ray.Options)` lists them. name, of the results folder, is by default `sweep`,
            or the name of the function or workload.

    Returns:
        The runs of this grid, as DataFrames: `.runs`, `.ranks`, `.epochs`.

    Raises:
        InputError: the sweep cannot be run as it was asked for; nothing was started, and nothing is lost.
    """
    if is_importing():
        raise ConfigError("sweep() was called while its module was imported; put it under if __name__ == '__main__'.")
    chosen, axes = _workload_and_axes(train_or_axes, axes, workload)
    for name in options:
        if name not in field_specs(Options):
            raise _unknown_option(name, chosen)
    default_name = "sweep" if chosen.name == registry.DEFAULT else folder_name(chosen)
    checked = Options(**{"name": default_name, **options})
    plan, space = plan_sweep(chosen.name_objects(axes), checked, chosen)
    return run_plan(plan, checked, PlainView(ProgressConsole()), space=space)


def _with_options(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function with the fields of `Options` in place of `**options`, for notebooks and `help`."""
    *parameters, _ = inspect.signature(function).parameters.values()
    options = inspect.signature(Options).parameters.values()
    return inspect.Signature([*parameters, *options], return_annotation="Results")


sweep.__signature__ = _with_options(sweep)  # type: ignore[attr-defined]


def _workload_and_axes(
    train_or_axes: str | Callable[..., Any] | Axes | None, axes: Axes | None, workload: str | None
) -> tuple[Workload, Axes]:
    if isinstance(train_or_axes, Mapping) and axes is None:
        return registry.workload(workload or registry.DEFAULT), train_or_axes
    if train_or_axes is None or isinstance(train_or_axes, Mapping) or not isinstance(axes, Mapping):
        raise ConfigError("sweep() takes axes, or a training function and its axes: sweep(train, {'lr': [0.1, 0.01]}).")
    if workload is not None:
        raise ConfigError(f"workload={workload} and a training function are both given; give one of them.")
    return registry.workload_of_function(train_or_axes, axes), axes


def _unknown_option(name: str, workload: Workload) -> ConfigError:
    if name in workload.schema().specs:
        return ConfigError(f"{name} is no option of sweep but a field of {workload.name}; put it into the axes.")
    names = ["workload", *field_specs(Options)]
    return ConfigError(f"{name} is no option of sweep; {did_you_mean(name, names)}the options are {', '.join(names)}.")
