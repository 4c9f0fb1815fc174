"""`Axis`: a field that a sweep varies, groups of trials that differ in it alone, and the pairs that are compared."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.returned import is_number

BATCHES = {"batch_per_rank", "global_batch"}
RANKS = {"world_size", "machines", "ranks_per_machine"}
"""Fields that count ranks. Each value is compared with the smallest."""


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
    if not trials:
        return []
    # What counts with some values of the axis alone may follow from it: momentum from the optimizer.
    follows = set()
    for name, spec in trials[0].workload.specs().items():
        if spec.setting.counts_with is not None and spec.setting.counts_with[0] == axis:
            follows.add(name)
    wide = group_by_other_factors(trials, free | follows)
    if all(len(group) == count_values(group, axis) for group in wide):
        return wide
    return group_by_other_factors(trials, free)


def groups_along_axis(trials: Sequence[Trial], axis: str, fixed_batch_field: str) -> list[list[Trial]]:
    """`all_groups_along_axis` without the groups in which the axis has one value."""
    # Several trials may agree in all fields: records of a damaged folder with different ids and equal configurations.
    groups = all_groups_along_axis(trials, axis, fixed_batch_field)
    return [group for group in groups if count_values(group, axis) > 1]


def group_by_other_factors(trials: Sequence[Trial], free: Collection[str]) -> list[list[Trial]]:
    """Groups of trials that agree in every varied field except for some."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        same = [item for item in trial.factors.items() if item[0] not in free]
        groups.setdefault(repr(same), []).append(trial)
    return list(groups.values())


def count_values(trials: Sequence[Trial], axis: str) -> int:
    """The number of values of an axis."""
    return len({repr(trial.factors.get(axis)) for trial in trials})


def groups_with_each_backend(trials: Sequence[Trial], free: Collection[str]) -> list[list[Trial]]:
    """`group_by_other_factors` with single-rank trials, whose backend is None, in the group of every backend."""
    found: list[list[Trial]] = []
    for backend in dict.fromkeys(trial.factors.get("backend") for trial in trials):
        candidates = [trial for trial in trials if trial.factors.get("backend") in (backend, None)]
        found += group_by_other_factors(candidates, {*free, "backend"})
    groups = [group for group in found if len(group) > 1]
    grouped = {trial.trial_id for trial in itertools.chain.from_iterable(groups)}
    return groups + [[trial] for trial in trials if trial.trial_id not in grouped]


PairKind = Literal[
    "values", "one_batch", "int8", "change", "trials", "trial", "batch", "curve", "gradient_noise"
]  # fmt: skip
"""Which words name a pair. values: two values of a field. one_batch: of ranks, whose steps have the same samples. int8:
one trial with its weights in int8 and in fp32. change: what the trial changes of the other one. trials: the
configurations of both. trial: that of the first alone. batch, curve, gradient_noise: a value of the critical batch."""


@dataclass(frozen=True)
class Pair:
    """Two trials that are compared."""

    trial: Trial
    base: Trial
    kind: PairKind = "trials"
    field: str = ""
    """The field in which they differ; empty if in several."""
    value: Any = None
    """The field of the trial."""
    base_value: Any = None
    shared: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What they share, and other pairs of these values do not."""
    count: int = 1
    """How many pairs of these values this one stands for, with their mean."""

    @property
    def key(self) -> tuple[str, ...]:
        """Equal in pairs of the same values."""
        return (self.kind, self.field, repr(self.value), repr(self.base_value))

    @property
    def ran_apart(self) -> bool:
        """Whether both trials have times, and of no block in one session."""
        trials = (self.trial, self.base)
        blocks, base_blocks = ({(record.repeat, record.session) for record in trial.timed} for trial in trials)
        return bool(blocks and base_blocks) and blocks.isdisjoint(base_blocks)


@dataclass(frozen=True)
class Axis:
    """A field, and groups of trials that differ in it alone."""

    name: str
    groups: Sequence[Sequence[Trial]]
    """Each from its first value to its last, or, of choices, its baseline first; in the order of the table."""
    is_ordered: bool
    """Whether its values are numbers, of which neighbours are compared; else each is compared with the baseline."""
    distinguishing: Sequence[str] = ()
    """The other fields in which the groups differ."""

    @classmethod
    def of(cls, trials: Sequence[Trial], name: str, varied: Collection[str], fixed_batch_field: str) -> Axis:
        """An axis of a sweep.

        Args:
            trials: those that may be compared.
            name: a field.
            varied: all fields that vary.
            fixed_batch_field: the batch that stays where the number of ranks changes.
        """
        is_ordered = name not in RANKS and all(is_number(trial.factors.get(name)) for trial in trials)
        groups = []
        for group in groups_along_axis(trials, name, fixed_batch_field):
            groups.append(_in_order(group, name, is_amount=is_ordered or name in RANKS))
        derived = {name, *(BATCHES - {fixed_batch_field})}
        if "machines" in varied:
            derived.add("world_size")
        distinguishing = []
        if len(groups) > 1:
            grouped = list(itertools.chain.from_iterable(groups))
            for field in grouped[0].factors:
                if field not in derived and count_values(grouped, field) > 1:
                    distinguishing.append(field)
        return cls(name, groups, is_ordered, distinguishing)

    def pair(self, group: Sequence[Trial], trial: Trial, base: Trial) -> Pair:
        """Two trials of a group."""
        value, base_value = trial.factors[self.name], base.factors[self.name]
        return Pair(trial, base, "values", self.name, value, base_value, self._shared(group))

    def _shared(self, group: Sequence[Trial]) -> dict[str, Any]:
        """What distinguishes a group from the others; empty where it is alone."""
        shared = {}
        for name in self.distinguishing:
            # A field that does not count with some of the trials, as the backend of one rank, is none there.
            values = {repr(trial.factors[name]): trial.factors[name] for trial in group}
            values.pop("None", None)
            if len(values) == 1:
                (shared[name],) = values.values()
        return shared

    def against_first(self, group: Sequence[Trial]) -> list[Pair]:
        """Each value of a group against the first one."""
        return [self.pair(group, trial, group[0]) for trial in group[1:]]

    def ends(self, group: Sequence[Trial]) -> list[Pair]:
        """The last value of a group of numbers against its first; of choices, each against the baseline."""
        pairs = self.against_first(group)
        return pairs[-1:] if self.is_ordered else pairs

    def steps(self, group: Sequence[Trial]) -> list[Pair]:
        """Each value of a group of three numbers or more against the one before; none of choices."""
        if not self.is_ordered or len(group) < 3:
            return []
        return [self.pair(group, trial, base) for base, trial in itertools.pairwise(group)]


def _in_order(group: Sequence[Trial], name: str, *, is_amount: bool) -> list[Trial]:
    if is_amount:
        return sorted(group, key=lambda trial: 1 if trial.factors[name] is None else trial.factors[name])
    baseline = None
    specs = group[0].workload.specs()
    if name in specs:
        baseline = specs[name].default
    values = [trial.factors[name] for trial in group]
    if baseline not in values:
        baseline = next((value for value in group[0].given.get(name, ()) if value in values), None)
    # Sorting is stable: without a baseline the first one stays.
    return sorted(group, key=lambda trial: trial.factors[name] != baseline)
