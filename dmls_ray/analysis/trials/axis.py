"""`Axis`: a field that a sweep varies, and groups of trials that differ in it alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.analysis.trials.groups import BATCHES, groups_along_axis
from dmls_ray.analysis.trials.trial import Row

RANKS = {"world_size": "ranks", "machines": "machines", "ranks_per_machine": "ranks/machine"}
"""Fields that count ranks -> the noun of their values. Each value is compared with the smallest."""


@dataclass(frozen=True)
class Axis:
    """A field, and groups of trials that differ in it alone."""

    name: str
    groups: Sequence[Sequence[Row]]
    """Each from its first value to its last, or, of choices, its baseline first; in the order of the table."""
    is_ordered: bool
    """Whether its values are numbers, of which neighbours are compared; else each is compared with the baseline."""
    distinguishing: Sequence[str] = ()
    """The other fields in which the groups differ."""

    @classmethod
    def of(cls, rows: Sequence[Row], name: str, varied: Collection[str], fixed_batch_field: str) -> Axis:
        """An axis of a sweep.

        Args:
            rows: the trials that may be compared.
            name: a field.
            varied: all fields that vary.
            fixed_batch_field: the batch that stays where the number of ranks changes.
        """
        is_ordered = name not in RANKS and all(is_number(row.factors.get(name)) for row in rows)
        groups = groups_along_axis(rows, name, fixed_batch_field)
        ordered = [_in_order(group, name, is_ordered=is_ordered) for group in groups]
        derived = {name, *(BATCHES - {fixed_batch_field})}
        if "machines" in varied:
            derived.add("world_size")
        return cls(name, ordered, is_ordered, _distinguishing(ordered, derived))

    def value(self, row: Row) -> str:
        """The value of a trial: `128`."""
        value = row.factors[self.name]
        return "unset" if value is None else str(value)

    @property
    def noun(self) -> str:
        """What its values are: `ranks`, `optimizer`."""
        return RANKS.get(self.name, self.name)

    def where(self, group: Sequence[Row]) -> str:
        """What distinguishes a group from the others: `2 ranks`, `precision bf16`; empty where it is alone."""
        texts = []
        for name in self.distinguishing:
            # A field that does not count with some of the trials, as the backend of one rank, is none there.
            values = {repr(row.factors[name]): row.factors[name] for row in group if row.factors[name] is not None}
            if len(values) == 1:
                texts.append(describe_value(name, *values.values()))
        return ", ".join(texts)


def describe_value(name: str, value: Any) -> str:
    """A field with its value: `precision bf16`, `1 rank`, `2 ranks/machine`."""
    noun = RANKS.get(name)
    if noun is None:
        return f"{name} {value}"
    return f"{value} {noun.replace('ranks', 'rank').replace('machines', 'machine') if value == 1 else noun}"


def is_number(value: object) -> bool:
    """Whether a value of a field is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _distinguishing(groups: Sequence[Sequence[Row]], derived: Collection[str]) -> list[str]:
    if len(groups) < 2:
        return []
    rows = [row for group in groups for row in group]
    names = [name for name in rows[0].factors if name not in derived]
    return [name for name in names if len({repr(row.factors[name]) for row in rows}) > 1]


def _in_order(group: Sequence[Row], name: str, *, is_ordered: bool) -> list[Row]:
    if is_ordered or name in RANKS:
        return sorted(group, key=lambda row: 1 if row.factors[name] is None else row.factors[name])
    spec = group[0].workload.specs().get(name)
    default = None if spec is None else spec.default
    base = next((row for row in group if row.factors[name] == default), group[0])
    return [base, *(row for row in group if row is not base)]
