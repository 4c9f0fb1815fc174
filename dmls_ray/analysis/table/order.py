"""The order of the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.analysis.table.row import Row
from dmls_ray.config.fields import FieldSpec


def positions_of(row: Row, names: Sequence[str]) -> tuple[tuple[int, Any], ...]:
    """Where a row stands by these fields; a field that it does not have comes first."""
    specs = row.workload.specs()
    return tuple(_position(specs, name, row.factors.get(name)) for name in names)


def _position(specs: Mapping[str, FieldSpec], name: str, value: Any) -> tuple[int, Any]:
    """Numbers by size; choices in the order of their field, which begins with the default."""
    if value is None:
        return (0, 0)
    choices = specs[name].choices if name in specs else ()
    if value in choices:
        return (1, choices.index(value))
    return (1, value) if isinstance(value, int | float) else (2, str(value))
