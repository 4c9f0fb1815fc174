"""The plan of a sweep: which runs, and where their results go.

>>> plan = make_plan({"batch_per_rank": [16, 32], "world_size": [1, 2]}, repeats=3, order_seed=0)
>>> len(plan.runs), plan.varied
(12, ('world_size', 'batch_per_rank'))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dmls_ray.config.axes import Axes, Range, checked_axes
from dmls_ray.config.grid import Plan, Variant, build_plan, configs_of
from dmls_ray.config.identity import OF_FUNCTION, Identity
from dmls_ray.config.options import Options
from dmls_ray.config.runtime import Schema
from dmls_ray.config.search_space import SearchSpace, make_search_space
from dmls_ray.storage.location import first_free_location
from dmls_ray.util.digests import source_digests
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.importing import try_import
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import metric_direction


def make_plan(axes: Mapping[str, Any], *, schema: Schema | None = None, **options: Any) -> Plan:
    """The plan of a full grid, or of several variants of each of its points.

    Args:
        axes: field of the schema -> one value, or a sequence of values. Equal points collapse into one.
        schema: the fields of the configuration; by default those of `TrialConfig`.
        **options: `variants`, `repeats` and `order_seed`, as of `build_plan`.

    Raises:
        ConfigError: a field or value is wrong, or every point of the grid is.
    """
    schema = schema or registry.workload(registry.DEFAULT).schema()
    return build_plan(checked_axes(axes, schema), schema, **options)


def minimizes(options: Options) -> bool:
    """Return whether the metric of a sweep is to be small: by `goal`, or by the metric's entry in the registry."""
    goal = metric_direction(options.searched_metric) if options.goal == "auto" else options.goal
    return goal == "min"


def judged_by(options: Options) -> tuple[str, bool] | None:
    """The metric by which alone trials are compared, as `Results.judged_by`."""
    return None if options.search or options.metric is None else (options.metric, minimizes(options))


def plan_of(axes: Mapping[str, Any], options: Options, workload: Workload) -> tuple[Plan, SearchSpace | None]:
    """What `plan_sweep` returns, of axes that Python gives: field -> one value, a sequence of values, or a range.

    Raises:
        ConfigError: there is no such field, or a value is wrong for it; or as `plan_sweep`.
    """
    schema = workload.schema()
    return plan_sweep(checked_axes(axes, schema), options, workload, schema=schema)


def plan_sweep(
    axes: Axes,
    options: Options,
    workload: Workload,
    *,
    schema: Schema | None = None,
    variants: Sequence[Variant] = ({},),
) -> tuple[Plan, SearchSpace | None]:
    """The plan that the options ask for: a grid, or random points of a search space.

    For a searcher of Ray Tune the plan has example points only, and the space it draws from is returned with it.

    Args:
        axes: field -> its checked values.
        options: how the sweep is run.
        workload: what is run.
        schema: the fields of the workload, if they are known.
        variants: what is changed at each point, as of `build_plan`.

    Raises:
        ConfigError: a value of a variant is wrong, a range is given and nothing draws from it, or no run would have a
            measure of the aim or the metric.
        DataError, UserCodeError: the user's data cannot be read.
    """
    schema = dataclasses.replace(schema or workload.schema(), identity_of=Identities(workload).of)
    metrics = workload.epoch_metrics
    if options.search and metrics is not None and options.searched_metric not in metrics:
        known = ", ".join(metrics)
        raise ConfigError(f"--metric {options.searched_metric}: unknown metric; {workload.name} reports {known}.")
    if options.metric and options.goal == "auto" and metric_direction(options.metric) == "none" and not options.search:
        raise ConfigError(
            f"--metric {options.metric}: whether more or less is better is not known; add --goal max or --goal min."
        )
    _check_aim(axes, options, workload)
    drawn = options.search and options.searcher != "grid"
    asked = workload.describe_sweep({name: _as_written(given) for name, given in axes.items()})
    if asked is not None:
        asked = {**asked, "variants": variants}
    space = make_search_space(axes, schema) if drawn else None
    if space is not None:
        axes = {name: (value,) for name, value in space.fixed.items()}
        variants = space.draw(options.trials, options.order_seed)
    plan = build_plan(axes, schema, variants=variants, repeats=options.blocks, order_seed=options.order_seed)
    plan = dataclasses.replace(plan, asked=asked)
    _check_validation(plan, options)
    if space is None:
        return plan, None
    return dataclasses.replace(plan, changed=()), space if options.uses_searcher else None


def _as_written(given: tuple[Any, ...] | Range) -> Any:
    """An axis as a sweep file has it: a single value is no list."""
    if isinstance(given, tuple) and len(given) == 1 and not isinstance(given[0], tuple):
        return given[0]
    return given


def _check_aim(axes: Axes, options: Options, workload: Workload) -> None:
    """Refuse an aim that no run of the workload has a measure of."""
    if options.aim not in ("accuracy", "time-to-accuracy"):
        return
    known = workload.epoch_metrics or [metric.name for metric in workload.metrics]
    if "test_accuracy" not in known:
        raise ConfigError(f"--aim {options.aim} needs test accuracies, and {workload.name} has none; use throughput.")
    if options.aim == "accuracy":
        return
    target = axes.get("target_accuracy")
    if target is None:
        raise ConfigError(
            "--aim time-to-accuracy needs the accuracy to be reached; add --target-accuracy 0.9, for example."
        )
    if isinstance(target, tuple) and len(target) > 1:
        texts = " ".join(f"{value:g}" for value in target)
        raise ConfigError(f"--target-accuracy {texts}: --aim time-to-accuracy needs one target; give one.")


def _check_validation(plan: Plan, options: Options) -> None:
    """Refuse to search by a metric of validation samples where runs have none."""
    if not options.search or not options.searched_metric.startswith("validation_"):
        return
    if any(getattr(config, "validation_share", None) == 0 for config in configs_of(plan.runs)):
        raise ConfigError(
            f"--metric {options.searched_metric} needs validation samples, and validation_share=0 holds none out; add "
            "--validation-share 0.1, for example, or leave --metric out."
        )


def results_location(options: Options) -> Path | str:
    """The results folder, or its URI. With `--fresh`, the first numbered one that holds no sweep.

    Raises:
        StoreError: the URI cannot be reached.
    """
    location = options.out or str(Path("results") / options.name)
    if options.fresh:
        return first_free_location(location)
    return location if options.is_remote else Path(location)


class Identities:
    """Computes the digests of each set of modules and the fingerprint of each data set once.

    Args:
        workload: the workload of all configurations.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._sources: dict[tuple[str, ...], Mapping[str, str]] = {}
        self._fingerprints: dict[tuple[Any, ...], str] = {}

    def of(self, config: Any) -> Identity:
        """The identity of a configuration.

        Raises:
            DataError, UserCodeError: its data cannot be read.
        """
        modules = tuple(sorted(set(self._workload.modules(config))))
        if modules not in self._sources:
            for module in modules:
                try_import(module)
            self._sources[modules] = source_digests(modules)
        code = dict(self._sources[modules])
        for name, digest in self._workload.functions(config).items():
            code[f"{name}{OF_FUNCTION}"] = digest
        data = {}
        for name, arguments in self._workload.data_sets(config).items():
            if arguments not in self._fingerprints:
                self._fingerprints[arguments] = self._workload.fingerprint(*arguments)
            data[name] = self._fingerprints[arguments]
        return Identity(modules=modules, code=code, data=data)
