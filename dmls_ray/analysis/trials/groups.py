"""Trials that differ in one factor alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dmls_ray.analysis.trials.trial import Row

BATCHES = {"batch_per_rank", "global_batch"}


def all_groups_along_axis(rows: Sequence[Row], axis: str, fixed_batch_field: str) -> list[list[Row]]:
    """Groups of rows that differ in the axis alone; a row that differs in more from every other is a group by itself.

    Args:
        rows: trials of one table.
        axis: the field that they may differ in.
        fixed_batch_field: the batch that stays fixed; the other one follows from the axis.
    """
    free = {axis}
    if axis in BATCHES:
        free |= BATCHES
    elif axis in ("world_size", "accum_steps"):
        free |= BATCHES - {fixed_batch_field}
    elif axis in ("machines", "ranks_per_machine"):
        free |= {"world_size", *BATCHES} - {fixed_batch_field}
    if axis in ("world_size", "machines", "ranks_per_machine"):
        return _with_each_backend(rows, free)
    # What counts with some values of the axis alone may follow from it: momentum from the optimizer.
    specs = rows[0].workload.specs() if rows else {}
    conditions = {name: spec.setting.counts_with for name, spec in specs.items()}
    follows = {name for name, condition in conditions.items() if condition is not None and condition[0] == axis}
    wide = group_by_other_factors(rows, free | follows)
    if all(len(group) == count_values(group, axis) for group in wide):
        return wide
    return group_by_other_factors(rows, free)


def groups_along_axis(rows: Sequence[Row], axis: str, fixed_batch_field: str) -> list[list[Row]]:
    """`all_groups_along_axis` without the groups of one row."""
    return [group for group in all_groups_along_axis(rows, axis, fixed_batch_field) if len(group) > 1]


def group_by_other_factors(rows: Sequence[Row], free: Collection[str]) -> list[list[Row]]:
    """Groups of rows that agree in every varied field except for some."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        same = {name: value for name, value in row.factors.items() if name not in free}
        groups.setdefault(repr(same), []).append(row)
    return list(groups.values())


def count_values(rows: Sequence[Row], axis: str) -> int:
    """The number of values of an axis."""
    return len({repr(row.factors.get(axis)) for row in rows})


def _with_each_backend(rows: Sequence[Row], free: Collection[str]) -> list[list[Row]]:
    """`group_by_other_factors` with single-rank rows, whose backend is None, in the group of every backend."""
    alone = [row for row in rows if row.factors.get("backend", "") is None]
    backends = dict.fromkeys(row.factors["backend"] for row in rows if row not in alone) if alone else {}
    groups = []
    for backend in backends:
        candidates = [*alone, *(row for row in rows if row.factors["backend"] == backend)]
        for group in group_by_other_factors(candidates, {*free, "backend"}):
            if len({row.world_size for row in group}) == len(group) > 1:
                groups.append(group)
    grouped = {row.trial_id for group in groups for row in group}
    return [*groups, *group_by_other_factors([row for row in rows if row.trial_id not in grouped], free)]
