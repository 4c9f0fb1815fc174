"""The default axes of a script, as far as the chosen workload takes them.

A value that the user has asked for is never left out: the sweep refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmls_ray.config.grid import Variant
from dmls_ray.config.schema import Schema
from dmls_ray.config.search_space import Range
from dmls_ray.util.errors import ConfigError

LeftOut = tuple[str, str, str]
"""A field, what of it is left out, `batch_norm=on`, and the reason."""


@dataclass(frozen=True, kw_only=True)
class DefaultAxes:
    """The axes and variants of a script, for which no flag is given."""

    axis: str | None
    """The field that the script asks about."""
    axes: Mapping[str, Any]
    variants: Sequence[Variant] = ({},)
    left_out: tuple[LeftOut, ...] = ()
    """What the workload cannot take."""

    def for_schema(self, schema: Schema) -> DefaultAxes:
        """The default axes of another workload than the script's: the values that its fields take.

        Raises:
            ConfigError: the workload lacks the field that the script asks about.
        """
        if self.axis is not None and self.axis not in schema.specs:
            raise ConfigError(
                f"{self.axis}, which this script asks about, is no field of {schema.title}; use sweeps/grid.py, which "
                "asks about any, or a workload that has it."
            )
        several = {name: given for name, given in self.axes.items() if _is_axis(given)}
        unfit: dict[tuple[str, Any], str] = {}
        for fields in (several, *self.variants):
            for name, given in fields.items():
                for value in _values_of(given):
                    if not _fits(schema, name, value):
                        unfit[name, value] = f"not for {schema.title}"
        return replace(self, axes=several)._without(unfit)

    def _without(self, unfit: Mapping[tuple[str, Any], str]) -> DefaultAxes:
        """The default axes without values that do not fit.

        Args:
            unfit: (field, value) -> the reason.

        The field that the script asks about keeps its values if fewer than two would be left: the sweep refuses them.
        """
        reasons = {name: reason for (name, _), reason in unfit.items()}
        axes, left_out = dict(self.axes), list(self.left_out)
        for name, given in self.axes.items():
            if name not in reasons:
                continue
            values = _values_of(given)
            kept = [value for value in values if (name, value) not in unfit]
            if name == self.axis and len(kept) < 2:
                continue
            lost = [value for value in values if (name, value) in unfit]
            if kept:
                axes[name] = kept
                left_out.append((name, _with_values(name, lost), reasons[name]))
            else:
                del axes[name]
                left_out.append((name, name, reasons[name]))

        variants = []
        for variant in self.variants:
            changes = [pair for pair in variant.items() if pair[0] in reasons and pair in unfit]
            for name, value in changes:
                left_out.append((name, _with_values(name, [value]), reasons[name]))
            if not changes:
                variants.append(variant)
        return replace(self, axes=axes, variants=variants or [{}], left_out=tuple(left_out))

    def note(self, asked: Mapping[str, Any]) -> str:
        """A line that names what was left out and that the user has not replaced; empty if nothing was."""
        by_reason: dict[str, list[str]] = {}
        for name, shown, reason in self.left_out:
            if name not in asked:
                by_reason.setdefault(reason, []).append(shown)
        parts = [f"{', '.join(shown)} ({reason})" for reason, shown in by_reason.items()]
        return f"Left out: {'; '.join(parts)}." if parts else ""


def _is_axis(given: Any) -> bool:
    return isinstance(given, Range) or (isinstance(given, list | tuple) and len(given) > 1)


def _values_of(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _with_values(name: str, values: Sequence[Any]) -> str:
    return f"{name}={', '.join(map(str, values))}"


def _fits(schema: Schema, name: str, value: Any) -> bool:
    """Whether a field exists and takes a value, or both ends of a range."""
    spec = schema.specs.get(name)
    if spec is None or (isinstance(value, Range) and not spec.is_number):
        return False
    try:
        if not isinstance(value, Range):
            spec.check(value)
            return True
        spec.check(value.low)
        spec.check(value.high)
    except ConfigError:
        return False
    return True
