"""`sweep`, the public function that runs a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

from dmls_ray.analysis.results import Results
from dmls_ray.config.options import Options
from dmls_ray.execution.plain_view import PlainView
from dmls_ray.execution.planning import plan_sweep
from dmls_ray.execution.run import run_plan
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.importing import is_importing
from dmls_ray.workloads.registry import DEFAULT, workload, workload_of_function
from dmls_ray.workloads.user_function.schema import folder_name


@overload
def sweep(axes: Mapping[str, Any], /, **options: Any) -> Results: ...
@overload
def sweep(train: str | Callable[..., Any], axes: Mapping[str, Any], /, **options: Any) -> Results: ...
def sweep(*what: Any, **options: Any) -> Results:
    """Run every configuration of a grid that its results folder does not hold yet.

    ``sweep(axes, ...)`` trains image classifiers, ``sweep(train, axes, ...)`` calls a training function of your own.

    Args:
        train: `train(config, rank, emit)`, or its name, `module:function`.
        axes: field -> one value, or a sequence of values. The fields are those of `TrialConfig`, of which
            batch_per_rank or global_batch must be given; or those of the function's own configuration, and world_size,
            backend, launcher, device, threads_per_rank and seed.
        **options: the fields of `Options`: repeats, out, fresh, isolation, address, max_retries, checkpoints, ...

    Returns:
        The runs of this grid, as DataFrames: `.runs`, `.ranks`, `.epochs`.

    Raises:
        InputError: what was asked for cannot be run; nothing was started, and nothing is lost.
    """
    from rich.console import Console

    if is_importing():
        raise ConfigError("sweep() was called while its module was imported; put it under if __name__ == '__main__'.")
    if len(what) not in (1, 2) or not isinstance(what[-1], Mapping):
        raise ConfigError("sweep() takes axes, or a training function and its axes: sweep(train, {'lr': [0.1, 0.01]}).")
    *functions, axes = what
    schema = (workload_of_function(functions[0], axes) if functions else workload(DEFAULT)).schema()
    known = Options.__dataclass_fields__
    for name in options:
        if name not in known:
            raise ConfigError(f"{name} is no option of sweep; the options are {', '.join(known)}.")
    if functions:
        options.setdefault("name", folder_name(functions[0]))
    settled = Options(**options)
    plan, space = plan_sweep(axes, settled, schema)
    return run_plan(plan, settled, PlainView(Console()), space=space)
