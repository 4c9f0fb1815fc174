"""Trials that can be compared along one factor: they differ in nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dmls_ray.analysis.tables import Row
from dmls_ray.config import COUNTS_WITH

BATCHES = {"batch_per_rank", "global_batch"}


def along(rows: Sequence[Row], axis: str, held: str) -> list[list[Row]]:
    """Rows that differ in the axis alone, together; one that has no such neighbour stands alone.

    Args:
        rows: trials of one table.
        axis: the field that they may differ in.
        held: the table's held batch; of the two, the one that is not held follows from the axis.
    """
    free = {axis}
    if axis in BATCHES:
        free |= BATCHES
    elif axis in ("world_size", "accum_steps"):
        free |= BATCHES - {held}
    # What counts with some values of the axis alone may follow from it: momentum from the optimizer.
    follows = {name for name, (other, _) in COUNTS_WITH.items() if other == axis}
    wide = alike_but_for(rows, free | follows)
    if all(len(group) == count_values(group, axis) for group in wide):
        return wide
    return alike_but_for(rows, free)


def alike_but_for(rows: Sequence[Row], free: Collection[str]) -> list[list[Row]]:
    """Rows that agree in all that varies except for some fields, together."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        same = {name: value for name, value in row.factors.items() if name not in free}
        groups.setdefault(repr(same), []).append(row)
    return list(groups.values())


def count_values(rows: Sequence[Row], axis: str) -> int:
    """How many values of an axis there are."""
    return len({repr(row.factors.get(axis)) for row in rows})
