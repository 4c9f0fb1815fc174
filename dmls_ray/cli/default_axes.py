"""The default values of a script, as far as the chosen workload takes them.

A value that the user has asked for is never left out: the sweep refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmls_ray.config.grid import Variant
from dmls_ray.config.schema import Schema
from dmls_ray.config.search_space import Range
from dmls_ray.util.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DefaultAxes:
    """The fields that a script varies by default, and their values."""

    axis: str | None
    """The field that the script asks about."""
    axes: Mapping[str, Any]
    variants: Sequence[Variant] = ({},)
    left_out: Sequence[str] = ()
    """Fields that the workload does not have, or of which it does not take all values."""
    title: str = ""
    """The workload that cannot take what is left out."""

    def for_schema(self, schema: Schema) -> DefaultAxes:
        """The default axes of another workload than the script's: of those with several values, what its fields take.

        The field that the script asks about keeps its values: the sweep refuses them.

        Raises:
            ConfigError: the workload lacks the field that the script asks about.
        """
        if self.axis and self.axis not in schema.specs:
            raise ConfigError(
                f"{self.axis}, which this script asks about, is no field of {schema.title}; use sweeps/grid.py, which "
                "asks about any, or a workload that has it."
            )
        axes, left_out = {}, []
        for name, given in self.axes.items():
            values = given if isinstance(given, list | tuple) else [given]
            if not isinstance(given, Range) and len(values) < 2:
                continue
            if name == self.axis or all(_fits(schema, name, value) for value in values):
                axes[name] = given
            else:
                left_out.append(name)
        variants = []
        for variant in self.variants:
            unfit = [name for name, value in variant.items() if not _fits(schema, name, value)]
            left_out += unfit
            if not unfit:
                variants.append(variant)
        return replace(self, axes=axes, variants=variants or [{}], left_out=left_out, title=schema.title)

    def note(self, asked: Collection[str]) -> str:
        """A line that names what was left out and that the user has not replaced; empty if nothing was."""
        shown = ", ".join(name for name in self.left_out if name not in asked)
        return f"Left out: {shown} (not for {self.title})." if shown else ""


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
