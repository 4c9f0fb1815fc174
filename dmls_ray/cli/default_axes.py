"""The default values of a script, as far as the chosen workload takes them.

A value that the user has asked for is never left out: the sweep refuses it.
"""

from __future__ import annotations

from typing import Any

from dmls_ray.cli.preset import Preset
from dmls_ray.config.grid import Variant
from dmls_ray.config.schema import Schema
from dmls_ray.config.search_space import Range
from dmls_ray.util.errors import ConfigError


def fitting_axes(preset: Preset, schema: Schema) -> tuple[dict[str, Any], list[Variant], list[str]]:
    """Of the axes of a script with several values, and of its variants, those that another workload's fields take.

    The field that the script asks about keeps its values: the sweep refuses them.

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
    axes: dict[str, Any] = {}
    left_out: list[str] = []
    for name, given in preset.axes.items():
        values = given if isinstance(given, list | tuple) else [given]
        if not isinstance(given, Range) and len(values) < 2:
            continue
        if name == preset.axis or all(_fits(schema, name, value) for value in values):
            axes[name] = given
        else:
            left_out.append(name)
    variants: list[Variant] = []
    for variant in preset.variants:
        unfit = [name for name, value in variant.items() if not _fits(schema, name, value)]
        left_out += unfit
        if not unfit:
            variants.append(variant)
    return axes, variants or [{}], left_out


def _fits(schema: Schema, name: str, value: Any) -> bool:
    """Whether a field exists and takes a value, or both ends of a range."""
    spec = schema.specs.get(name)
    if spec is None or (isinstance(value, Range) and not spec.is_number):
        return False
    try:
        for item in (value.low, value.high) if isinstance(value, Range) else (value,):
            spec.check(item)
    except ConfigError:
        return False
    return True
