"""`SearchSpace`: the fixed fields, choices and ranges of a search."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dmls_ray.config.axes import Axes, Range
from dmls_ray.config.grid import Run, drop_ineffective, make_run
from dmls_ray.config.runtime import Schema
from dmls_ray.util.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """The points that a search may propose."""

    schema: Schema
    fixed: Mapping[str, Any]
    """Fields with one value."""
    free: Mapping[str, tuple[Any, ...] | Range]
    """Fields with several values or a range."""

    def draw(self, count: int, seed: int) -> list[dict[str, Any]]:
        """`count` random points. A larger count begins with the same points."""
        chance = random.Random(seed)
        points = []
        for _ in range(count):
            point = {}
            for name, item in self.free.items():
                drawn = item.draw(chance) if isinstance(item, Range) else chance.choice(item)
                point[name] = self.value_of(name, drawn)
            points.append(point)
        return points

    def value_of(self, name: str, value: Any) -> Any:
        """A value converted to the type of its field. A value of a range has four digits, so tables show it exactly."""
        item = self.free[name]
        if isinstance(item, Range):
            value = round(value) if self.is_whole(name) else float(f"{value:.4g}")
            # Rounded, it may lie outside.
            value = min(max(value, item.low), item.high)
        elif isinstance(value, str) and value in item:
            # Of a record, or of a searcher that copies: without the object that a name brings along.
            value = item[item.index(value)]
        return self.schema.check(name, value)

    def at_most(self, count: int) -> int:
        """`count`, or the number of points if that is smaller."""
        points = 1
        for item in self.free.values():
            if isinstance(item, Range):
                return count
            points *= len(item)
        return min(count, points)

    def contains(self, point: Mapping[str, Any]) -> bool:
        """Whether a point lies in this space."""
        if point.keys() != self.free.keys():
            return False
        return all(point[name] in item for name, item in self.free.items())

    def is_whole(self, name: str) -> bool:
        """Whether a field takes whole numbers."""
        return self.schema.specs[name].type == "int"

    def run_of_each_choice(self) -> list[Run]:
        """A run with each value of each field with choices; the other fields have their first or lowest value."""
        first = {name: item.low if isinstance(item, Range) else item[0] for name, item in self.free.items()}
        choices = {name: item for name, item in self.free.items() if not isinstance(item, Range)}
        return [self.run_of({**first, name: value}) for name, values in choices.items() for value in values]

    def run_of(self, proposed: Mapping[str, Any], order: int = 0) -> Run:
        """The run of one point; its `skip` is the reason if the values conflict.

        Raises:
            ConfigError: a value is wrong.
        """
        values = {**self.fixed, **{name: self.value_of(name, value) for name, value in proposed.items()}}
        # What does nothing at this very point, momentum with Adam say, may do something at others.
        drop_ineffective(values, self.schema)
        return make_run(values, self.schema, order=order, proposed=dict(proposed))


def make_search_space(axes: Axes, schema: Schema) -> SearchSpace:
    """The space of axes.

    Raises:
        ConfigError: nothing is free.
    """
    fixed: dict[str, Any] = {}
    free: dict[str, tuple[Any, ...] | Range] = {}
    for name, given in axes.items():
        if isinstance(given, tuple) and len(given) == 1:
            fixed[name] = given[0]
        else:
            free[name] = given
    if not free:
        raise ConfigError(
            "search has nothing to search: give a flag several values, or --range or --log-range of a field."
        )
    return SearchSpace(schema=schema, fixed=fixed, free=free)
