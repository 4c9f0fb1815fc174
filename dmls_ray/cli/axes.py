"""The axes of a sweep script: its defaults, replaced by the flags that were given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_ray.config.runtime import MACHINE_FIELDS
from dmls_ray.config.schema import Schema
from dmls_ray.config.search_space import Range
from dmls_ray.util.errors import ConfigError


def merge_axes(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The axes of a script with the values of flags; a flag that was not given is None.

    Raises:
        ConfigError: both batch_per_rank and global_batch are given.
    """
    flags = {key: values for key, values in given.items() if values is not None}
    if "batch_per_rank" in flags and "global_batch" in flags:
        raise ConfigError(
            "--batch-per-rank and --global-batch are both given; give one: the other follows from batch_per_rank x "
            "world_size x accum_steps."
        )

    # A batch that was asked for replaces either default.
    replaced = {"batch_per_rank", "global_batch"} if flags.keys() & {"batch_per_rank", "global_batch"} else set()

    # world_size, machines and ranks_per_machine: two of them give the third.
    asked = [name for name in ("world_size", *MACHINE_FIELDS) if name in flags]
    if len(asked) == 2:
        replaced |= {"world_size", *MACHINE_FIELDS}
    elif asked == ["world_size"] and {*MACHINE_FIELDS} <= defaults.keys():
        replaced.add("ranks_per_machine")

    return {key: values for key, values in defaults.items() if key not in replaced} | flags


def defaults_for(schema: Schema, defaults: Mapping[str, Any], axis: str | None) -> dict[str, Any]:
    """The default axes of a script that another workload has as well.

    Raises:
        ConfigError: the workload lacks the field that the script asks about.
    """
    if axis is not None and axis not in schema.specs:
        raise ConfigError(
            f"{axis}, which this script asks about, is no field of {schema.title}; use sweeps/grid.py, which asks "
            "about any, or a workload that has it."
        )
    return {name: value for name, value in defaults.items() if name in schema.specs and _is_axis(value)}


def parse_range(name: str, low: str, high: str, *, log: bool = False) -> Range:
    """The range of `--range NAME LOW HIGH`, or of `--log-range`.

    Raises:
        ConfigError: the ends are no numbers, or the range is empty.
    """
    try:
        return Range(float(low), float(high), log=log)
    except ValueError as error:
        raise ConfigError(f"a range of {name} from {low} to {high} is not of numbers; give two numbers.") from error
    except ConfigError as error:
        raise ConfigError(f"{'--log-range' if log else '--range'} {name}: {error}") from error


def _is_axis(value: Any) -> bool:
    return isinstance(value, Range) or (isinstance(value, list | tuple) and len(value) > 1)
