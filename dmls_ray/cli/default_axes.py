"""The default values of a script, as far as the chosen workload takes them.

A value that the user has asked for is never left out: the sweep refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Field -> what of it is left out: `batch_norm=on`."""
    title: str = ""
    """The workload that cannot take what is left out."""

    def for_schema(self, schema: Schema) -> DefaultAxes:
        """The default axes of another workload than the script's: of those with several values, what its fields take.

        The field that the script asks about keeps its values if fewer than two would be left: the sweep refuses them.

        Raises:
            ConfigError: the workload lacks the field that the script asks about.
        """
        if self.axis and self.axis not in schema.specs:
            raise ConfigError(
                f"{self.axis}, which this script asks about, is no field of {schema.title}; use sweeps/grid.py, which "
                "asks about any, or a workload that has it."
            )
        axes, left_out = {}, {}
        for name, given in self.axes.items():
            values = given if isinstance(given, list | tuple) else [given]
            if not isinstance(given, Range) and len(values) < 2:
                continue
            lost = [value for value in values if not _fits(schema, name, value)]
            kept = [value for value in values if value not in lost]
            if not lost or (name == self.axis and len(kept) < 2):
                axes[name] = given
            elif kept:
                axes[name] = kept
                left_out[name] = f"{name}={', '.join(map(str, lost))}"
            else:
                left_out[name] = name
        variants = []
        for variant in self.variants:
            unfit = [name for name, value in variant.items() if not _fits(schema, name, value)]
            for name in unfit:
                left_out[name] = f"{name}={variant[name]}"
            if not unfit:
                variants.append(variant)
        return replace(self, axes=axes, variants=variants or [{}], left_out=left_out, title=schema.title)

    def note(self, asked: Collection[str]) -> str:
        """A line that names what was left out and that the user has not replaced; empty if nothing was."""
        shown = [text for name, text in self.left_out.items() if name not in asked]
        return f"Left out: {', '.join(shown)} (not for {self.title})." if shown else ""


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
