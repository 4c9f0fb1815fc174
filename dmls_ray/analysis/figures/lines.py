"""Which trials belong on one line of a figure, what a trial is called, and the axes of factors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.analysis.figures.chart import Axis
from dmls_ray.analysis.table.grouping import BATCHES, all_groups_along_axis, count_values
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.config.fields import FieldSpec, field_specs
from dmls_ray.workloads.registry import workload_of

SINGLE_LINE = "measured"
"""Name of the only line of a figure."""

_ALWAYS_NAMED = {"world_size", *BATCHES}


@dataclass(frozen=True)
class Line:
    """Trials that differ in the factor of the x axis only, in the order of that factor."""

    name: str
    axis: str
    """Name of the factor."""
    rows: list[Row]


def lines_along(table: Table, rows: Sequence[Row], axis: str) -> list[Line]:
    """The lines of a figure over a numeric factor, named by the fields in which they differ.

    Returns:
        An empty list if no two trials can be joined.
    """
    rows = [row for row in rows if is_number(row.factors.get(axis))]
    groups = [
        sorted(group, key=lambda row: row.factors[axis])
        for group in all_groups_along_axis(rows, axis, table.fixed_batch_field)
    ]
    if not any(len(group) > 1 for group in groups):
        return []

    within = {axis} | {name for group in groups for name in table.varied if count_values(group, name) > 1}
    names = [name for name in differing_fields(table, [group[0] for group in groups]) if name not in within]
    return [Line(trial_label(group[0], names) or SINGLE_LINE, axis, group) for group in groups]


def batch_axis(table: Table) -> str:
    """The batch field of an x axis: the fixed one, which means the same at every world size."""
    fixed = table.fixed_batch_field
    return "global_batch" if fixed == "global_batch" and "global_batch" in table.varied else "batch_per_rank"


def default_axis(table: Table, rows: Sequence[Row]) -> str:
    """The numeric x axis of a figure that has no fixed one; empty if no factor qualifies.

    The first of world_size, the batch and the varied fields along which two trials can be joined.
    """
    names = dict.fromkeys(("world_size", batch_axis(table), *table.varied))
    numeric = (name for name in names if all(is_number(row.factors.get(name)) for row in rows))
    return next((name for name in numeric if lines_along(table, rows, name)), "")


def differing_fields(table: Table, rows: Sequence[Row]) -> list[str]:
    """The fields in which trials differ; of the two batch fields only the fixed one, since the other follows."""
    derived = BATCHES - {table.fixed_batch_field}
    return [name for name in table.varied if name not in derived and count_values(rows, name) > 1]


def trial_label(row: Row, names: Sequence[str]) -> str:
    """Label of a trial by the fields in which trials differ: `world_size 2, optimizer adam`.

    Of more than two fields those at their default are left out, except ranks and batch.
    """
    shown = list(names)
    if len(names) > 2:
        shown = [name for name in names if name in _ALWAYS_NAMED or not _is_default(row, name)]
        if not shown:
            return "all at their defaults"
    return ", ".join(f"{name} {format_factor(row.factors[name])}" for name in shown)


def trial_labels(table: Table, rows: Sequence[Row]) -> list[str]:
    """The label of each trial; a single trial is labelled by the fields that vary in the table."""
    names = differing_fields(table, rows if len(rows) > 1 else table.rows)
    return [trial_label(row, names) for row in rows]


def factor_axis(lines: Sequence[Line]) -> Axis:
    """The x axis of lines along one factor; logarithmic if the values of the factor span a factor of four or more."""
    name, rows = lines[0].axis, [row for line in lines for row in line.rows]
    values = sorted({row.factors[name] for row in rows})
    return Axis(_with_unit(name, rows), log=bool(values) and values[0] > 0 and values[-1] >= 4 * values[0])


def trial_axis(table: Table, rows: Sequence[Row]) -> tuple[Axis, list[str]]:
    """An axis with one category per trial, and the category of each trial.

    The categories are the values of the field in which the trials differ, or the labels of the trials if they differ
    in several fields.
    """
    names = differing_fields(table, rows)
    if len(names) == 1:
        values = [format_factor(row.factors[names[0]]) for row in rows]
        return Axis(_with_unit(names[0], rows), categories=values), values
    labels = trial_labels(table, rows)
    return Axis("trial", categories=labels), labels


def format_factor(value: Any) -> str:
    """The value of a factor in a legend."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def is_number(value: Any) -> bool:
    """Whether the value of a factor has a position on a numeric axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_unit(name: str, rows: Iterable[Row]) -> str:
    spec = next((spec for row in rows if (spec := _spec(row, name)) is not None), None)
    return f"{name} ({spec.setting.unit})" if spec is not None and spec.setting.unit else name


def _is_default(row: Row, name: str) -> bool:
    """Whether a field is at its default; the backend of one rank is None, which is no choice either."""
    value, spec = row.factors[name], _spec(row, name)
    return value is None or (spec is not None and value == spec.default)


def _spec(row: Row, name: str) -> FieldSpec | None:
    """The field of this name, without importing a user-defined training function."""
    return field_specs(workload_of(row.records[0].config).config).get(name)
