"""`Axis`: a field that a sweep varies, and its trials in the order in which an answer reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dmls_ray.analysis.table.axis_groups import BATCHES, groups_along_axis
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.config.until import Until

RANKS = {"world_size": "rank", "machines": "machine", "ranks_per_machine": "rank per machine"}
"""Axes of which each value is compared with the smallest -> the noun of one of it."""


@dataclass(frozen=True)
class Axis:
    """A field, and groups of trials that differ in it alone."""

    name: str
    groups: Sequence[Sequence[Row]]
    """Each from its first value to its last, or, of choices, its baseline first; in the order of the table."""
    is_ordered: bool
    """Whether its values are numbers, of which neighbours are compared; else each is compared with the baseline."""
    derived: frozenset[str] = frozenset()
    """Fields that follow from others, and distinguish no groups: the batch that is not fixed."""
    until: Until = field(default_factory=Until)
    """Says which differences count as none."""

    @classmethod
    def of(cls, table: Table, name: str, rows: Sequence[Row]) -> Axis:
        """An axis of a table.

        Args:
            table: the table.
            name: a field.
            rows: its trials that may be compared.
        """
        values = [row.factors.get(name) for row in rows]
        is_ordered = name not in RANKS and all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values
        )
        groups = groups_along_axis(rows, name, table.fixed_batch_field)
        derived = {*(BATCHES - {table.fixed_batch_field}), *(["world_size"] if "machines" in table.varied else [])}
        ordered = [_in_order(group, name, is_ordered=is_ordered) for group in groups]
        return cls(name, ordered, is_ordered, frozenset(derived), table.until)

    def value(self, row: Row) -> str:
        """Its value: `128`."""
        value = row.factors[self.name]
        return "unset" if value is None else str(value)

    @property
    def noun(self) -> str:
        """What its values are: `number of ranks`, `optimizer`."""
        noun = RANKS.get(self.name)
        return self.name if noun is None else f"number of {count(2, noun).removeprefix('2 ')}"

    def subject(self, row: Row) -> str:
        """A trial by its value: `batch_per_rank 128`, `2 ranks`."""
        value = self.value(row)
        noun = RANKS.get(self.name)
        return f"{self.name} {value}" if noun is None else count(value, noun)

    def is_plural(self, row: Row) -> bool:
        """Whether `subject` is a plural: `2 ranks`."""
        return self.name in RANKS and self.value(row) != "1"

    def place(self, group: Sequence[Row]) -> str:
        """What distinguishes a group from the others: ` on 2 ranks`, ` at precision bf16`; empty where it is alone."""
        names = [name for name in self._differing if len({repr(row.factors[name]) for row in group}) == 1]
        same = {name: group[-1].factors[name] for name in names}
        ranks = "".join(f" on {count(same.pop(name), noun)}" for name, noun in RANKS.items() if name in same)
        others = ", ".join(f"{name} {value}" for name, value in same.items())
        return f"{others and f' at {others}'}{ranks}"

    @cached_property
    def _differing(self) -> list[str]:
        """The other fields in which the groups differ."""
        rows = [row for group in self.groups for row in group]
        names: Iterable[str] = rows[0].factors if rows and len(self.groups) > 1 else ()
        names = [name for name in names if name != self.name and name not in self.derived]
        return [name for name in names if len({repr(row.factors[name]) for row in rows}) > 1]


def count(number: object, noun: str) -> str:
    """`1 rank`, `2 ranks`, `2 ranks per machine`."""
    head, *rest = noun.split(" ")
    return " ".join([str(number), f"{head}{'' if str(number) == '1' else 's'}", *rest])


def _in_order(group: Sequence[Row], name: str, *, is_ordered: bool) -> list[Row]:
    if is_ordered or name in RANKS:
        return sorted(group, key=lambda row: 1 if row.factors[name] is None else row.factors[name])
    spec = group[0].workload.specs().get(name)
    default = None if spec is None else spec.default
    base = next((row for row in group if row.factors[name] == default), group[0])
    return [base, *(row for row in group if row is not base)]
