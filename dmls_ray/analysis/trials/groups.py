"""Trials that differ in one field alone."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from dmls_ray.analysis.trials.trial import Trial

BATCHES = {"batch_per_rank", "global_batch"}
RANKS = {"world_size": "ranks", "machines": "machines", "ranks_per_machine": "ranks/machine"}
"""Fields that count ranks -> the noun of their values. Each value is compared with the smallest."""


def all_groups_along_axis(trials: Sequence[Trial], axis: str, fixed_batch_field: str) -> list[list[Trial]]:
    """Groups that differ in the axis alone; a trial that differs in more from every other is a group by itself.

    Args:
        trials: those of one table.
        axis: the field that they may differ in.
        fixed_batch_field: the batch that stays fixed; the other one follows from the axis.
    """
    free = {axis}
    if axis in BATCHES:
        free |= BATCHES
    elif axis in RANKS or axis == "accum_steps":
        free |= BATCHES - {fixed_batch_field}
    if axis in ("machines", "ranks_per_machine"):
        free.add("world_size")
    if axis in RANKS:
        return groups_with_each_backend(trials, free)
    # What counts with some values of the axis alone may follow from it: momentum from the optimizer.
    follows = set()
    for name, spec in trials[0].workload.specs().items() if trials else ():
        if spec.setting.counts_with is not None and spec.setting.counts_with[0] == axis:
            follows.add(name)
    wide = group_by_other_factors(trials, free | follows)
    if all(len(group) == count_values(group, axis) for group in wide):
        return wide
    return group_by_other_factors(trials, free)


def groups_along_axis(trials: Sequence[Trial], axis: str, fixed_batch_field: str) -> list[list[Trial]]:
    """`all_groups_along_axis` without the groups of one trial."""
    return [group for group in all_groups_along_axis(trials, axis, fixed_batch_field) if len(group) > 1]


def group_by_other_factors(trials: Sequence[Trial], free: Collection[str]) -> list[list[Trial]]:
    """Groups of trials that agree in every varied field except for some."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        same = {name: value for name, value in trial.factors.items() if name not in free}
        groups.setdefault(repr(same), []).append(trial)
    return list(groups.values())


def count_values(trials: Sequence[Trial], axis: str) -> int:
    """The number of values of an axis."""
    return len({repr(trial.factors.get(axis)) for trial in trials})


def groups_with_each_backend(trials: Sequence[Trial], free: Collection[str]) -> list[list[Trial]]:
    """`group_by_other_factors` with single-rank trials, whose backend is None, in the group of every backend."""
    groups: list[list[Trial]] = []
    for backend in dict.fromkeys(trial.factors.get("backend") for trial in trials):
        candidates = [trial for trial in trials if trial.factors.get("backend") in (backend, None)]
        found = group_by_other_factors(candidates, {*free, "backend"})
        groups += [group for group in found if len(group) > 1]
    grouped = {trial.trial_id for trial in itertools.chain.from_iterable(groups)}
    return groups + [[trial] for trial in trials if trial.trial_id not in grouped]
