"""Which trials a chart draws, and how it labels them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.axis import BATCHES, count_values
from dmls_ray.analysis.trials.trial import Trial, name_of_change

MAX_SERIES = 8
"""Series of one panel that are distinguishable by colour and mark."""
SINGLE_LINE = "measured"
"""Name of the only line of a figure."""

_ALWAYS_NAMED = {"world_size", *BATCHES}

Item = TypeVar("Item")


def differing_fields(table: Table, rows: Sequence[Trial]) -> list[str]:
    """The fields in which trials differ; of the two batch fields only the fixed one, since the other follows."""
    derived = BATCHES - {table.fixed_batch_field}
    return [name for name in table.varied if name not in derived and count_values(rows, name) > 1]


def trial_label(row: Trial, names: Sequence[str], changed: Collection[str] = ()) -> str:
    """Label of a trial by the fields in which trials differ: `world_size 2, optimizer adam`.

    Of more than two fields those at their default are left out, except ranks and batch, unless all are.

    Args:
        row: the trial.
        names: the fields.
        changed: fields that were changed one at a time; they are one part of the label: `dropout=0.3`, `baseline`.
    """
    others = [name for name in names if name not in changed]
    shown = others
    if len(others) > 2:
        shown = [name for name in others if name in _ALWAYS_NAMED or not _is_default(row, name)] or others
    parts = [f"{name} {format_factor(row.factors[name])}" for name in shown]
    if len(others) < len(names):
        parts.insert(0, name_of_change(row, changed))
    return ", ".join(parts)


def trial_labels(table: Table, rows: Sequence[Trial]) -> list[str]:
    """The label of each trial; a single trial is labelled by the fields that vary in the table."""
    names = differing_fields(table, rows if len(rows) > 1 else table.rows)
    return [trial_label(row, names, table.changed) for row in rows]


def format_factor(value: Any) -> str:
    """The value of a field in a legend."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_default(row: Trial, name: str) -> bool:
    """Whether a field is at its default; the backend of one rank is None, which is no choice either."""
    value, spec = row.factors[name], row.workload.specs().get(name)
    return value is None or (spec is not None and value == spec.default)


def limit_items(items: Sequence[Item], noun: str, most: int = MAX_SERIES) -> tuple[list[Item], list[str]]:
    """At most so many items, spread evenly from the first to the last, and a note on those left out.

    Args:
        items: in the order of the table.
        noun: what the note calls them.
        most: how many to keep.
    """
    if len(items) <= most:
        return list(items), []
    kept = [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]
    return kept, [f"{most} of {len(items)} {noun} are drawn; the table has all of them."]
