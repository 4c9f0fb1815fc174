"""`Request`: what the command line of a sweep script asks."""

from __future__ import annotations

import inspect
import itertools
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.cli.flags import (
    Parser,
    add_flags,
    add_workload_flags,
    flag_of,
    merge_axes,
    parse,
    read_axes,
    read_options,
)
from dmls_ray.cli.sweep_script import Preset
from dmls_ray.config.grid import Plan, Variant
from dmls_ray.config.options import SEARCH_ONLY, Options
from dmls_ray.config.runtime import Schema
from dmls_ray.config.search_space import Range, SearchSpace
from dmls_ray.execution.planning import folder_name, plan_sweep
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.text import utf8_safe
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a command line asks, together with the preset of its script."""

    workload: Workload
    axes: Mapping[str, Any]
    """Axes of the script, with those of flags in their place."""
    variants: Sequence[Variant]
    left_out: Sequence[str]
    """Axes of the script that the workload does not take."""
    script_fields: Collection[str]
    """Fields that the script has values of: without a flag, they would be varied."""
    options: Options
    dry_run: bool
    restarts: int
    """How often the supervisor starts the sweep again without a new run in between."""
    workload_words: Sequence[str]
    """Flags that chose the workload."""
    set_fields: Sequence[str]
    """Fields of a training function without a dataclass, whose flag is --set."""

    def plan(self) -> tuple[Plan, SearchSpace | None]:
        """The plan, and the space of a search.

        Raises:
            InputError: the sweep cannot be run as it was asked for.
        """
        return plan_sweep(self.axes, self.options, self.workload, variants=self.variants)


def parse_request(parser: Parser, preset: Preset, words: list[str]) -> Request:
    """Add the flags of a sweep script to a parser, and parse a command line.

    Raises:
        InputError: a word or a combination of words is wrong.
    """
    for word in words:
        if utf8_safe(word) != word:
            raise ConfigError(f"The word {word!a} is not UTF-8; give another name.")
    default = registry.workload(preset.workload or registry.DEFAULT)
    if preset.train:
        default = registry.workload_of_function(preset.train)
    add_workload_flags(parser, default.name)
    first, _ = parser.parse_known_args([word for word in words if word not in ("-h", "--help")])
    workload = _chosen_workload(first, default)
    schema = workload.schema()
    defaults, variants = preset.axes, preset.variants
    left_out: list[str] = []
    name, layout = preset.name, preset.layout
    if workload.name != default.name:
        name, layout = folder_name(workload), None
        defaults, variants, left_out = _axes_of_another_workload(preset, schema)
    preset_options = preset.options or {}
    add_flags(parser, schema, defaults, preset_options)
    given = vars(parse(parser, words))
    axes = read_axes(given, schema)
    script_fields = {*defaults}.union(*variants)
    if any(axes.keys() & variant.keys() for variant in variants):
        variants, left_out = [{}], []

    if given["restarts"] < 0:
        raise ConfigError(f"--restarts {given['restarts']} is out of range; give 0 or more.")
    asked_options = read_options(given)
    options = {**preset_options, **asked_options}
    if options.get("mode", "bench") == "bench":
        # Search options of the script do not apply.
        options = {key: value for key, value in options.items() if key in asked_options or key not in SEARCH_ONLY}
    question = inspect.cleandoc(preset.question).partition("\n\n")[0]
    return Request(
        workload=workload,
        axes=merge_axes(defaults, axes),
        variants=variants,
        left_out=[field for field in left_out if field not in axes],
        script_fields=script_fields,
        options=Options(name=name, axis=preset.axis, question=question, layout=layout, **options),
        dry_run=given["dry_run"],
        restarts=given["restarts"],
        workload_words=_workload_words(first),
        set_fields=_named_fields(first) if ":" in workload.name else [],
    )


def _chosen_workload(first: Namespace, default: Workload) -> Workload:
    """The workload that flags choose.

    Raises:
        ConfigError: there is no such workload, or the flags contradict each other.
    """
    for name, *values in first.set:
        if not values:
            raise ConfigError(f"--set {name} names no value; give one or several: --set {name} 1 2.")
    if first.train is not None and first.workload:
        raise ConfigError(f"--workload {first.workload} and --train {first.train} are both given; give one of them.")
    chosen = registry.workload(first.workload) if first.workload else default
    function = first.train
    if function is None and chosen is default and ":" in chosen.name:
        function = chosen.name
    if function is not None:
        return registry.workload_of_function(function, _named_fields(first))
    if first.set:
        raise ConfigError(f"--set {first.set[0][0]} is for a training function; give it with --train module:function.")
    return chosen


def _named_fields(first: Namespace) -> list[str]:
    """The fields that --set, --range and --log-range name."""
    return [name for name, *_ in (*first.set, *first.range, *first.log_range)]


def _workload_words(first: Namespace) -> list[str]:
    words = []
    for name in ("train", "workload"):
        if (value := getattr(first, name)) is not None:
            words += [flag_of(name), value]
    return words


def _axes_of_another_workload(preset: Preset, schema: Schema) -> tuple[dict[str, Any], Sequence[Variant], list[str]]:
    """The axes of a script with several values, and its variants, as far as another workload has the fields.

    Returns:
        The axes, the variants, and the fields that are left out.

    Raises:
        ConfigError: the workload lacks the field that the script asks about.
    """
    if preset.axis and preset.axis not in schema.specs:
        raise ConfigError(
            f"{preset.axis}, which this script asks about, is no field of {schema.title}; use sweeps/grid.py, which "
            "asks about any, or a workload that has it."
        )
    axes = {}
    for name, given in preset.axes.items():
        if isinstance(given, Range) or (isinstance(given, list | tuple) and len(given) > 1):
            axes[name] = given
    names = dict.fromkeys([*axes, *itertools.chain(*preset.variants)])
    left_out = [name for name in names if name not in schema.specs]
    variants = [variant for variant in preset.variants if variant.keys().isdisjoint(left_out)]
    return {name: axes[name] for name in axes if name in schema.specs}, variants or [{}], left_out
