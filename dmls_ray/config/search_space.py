"""`SearchSpace`: the fixed fields, choices and ranges of a search."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dmls_ray.config.grid import Run, drop_ineffective, make_run, values_of
from dmls_ray.config.runtime import Schema
from dmls_ray.config.value_texts import share_of
from dmls_ray.util.errors import ConfigError


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`; integers for an integer field.

    Raises:
        ConfigError: the range is empty, or a logarithmic range does not begin above 0.
    """

    low: float
    high: float
    log: bool = False
    """Whether the logarithm is uniform, as is usual for learning rates."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigError(f"the range from {self.low} to {self.high} is empty; give the lower end first.")
        if self.log and self.low <= 0:
            raise ConfigError(f"a logarithmic range cannot start at {self.low}; give more than 0.")

    def __str__(self) -> str:
        return f"any from {self.low:g} to {self.high:g}" + (", by its logarithm" if self.log else "")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def draw(self, chance: random.Random) -> float:
        """A random number of the range."""
        if self.log:
            return math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        return chance.uniform(self.low, self.high)


def of_ray_tune(name: str, given: Any) -> Any:
    """The values of an axis that is given as Ray Tune has them: `grid_search`, `choice`, `uniform` or `loguniform`.

    Raises:
        ConfigError: nothing here corresponds to it.
    """
    if isinstance(given, Mapping) and given.keys() == {"grid_search"}:
        return list(given["grid_search"])
    if type(given).__module__ != "ray.tune.search.sample":
        return given
    sampler = type(given.get_sampler()).__name__
    if sampler == "_Uniform" and hasattr(given, "categories"):
        return list(given.categories)
    if hasattr(given, "upper") and sampler in ("_Uniform", "_LogUniform"):
        high = given.upper - isinstance(given.upper, int)  # of whole numbers, Ray leaves the upper end out
        return Range(given.lower, high, log=sampler == "_LogUniform")
    raise ConfigError(f"{name}: {given} of ray.tune has no counterpart; give a list of values, or Range(low, high).")


@dataclass(frozen=True)
class Largest:
    """The largest value of a field with which a run fits into memory, or a share of it."""

    share: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Largest | None:
        """What `max` and `max:0.9` mean; None for any other text.

        Raises:
            ConfigError: the share is not above 0 and at most 1.
        """
        word, colon, share = text.partition(":")
        if word != "max":
            return None
        try:
            given = share_of(share) if colon else 1.0
        except ValueError as error:
            raise ConfigError(f"{text}: {error}") from error
        if not 0 < given <= 1:
            raise ConfigError(f"{text}: a share is above 0 and at most 1; give max, or max:0.9.")
        return cls(given)


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


def make_search_space(axes: Mapping[str, Any], schema: Schema) -> SearchSpace:
    """The space of axes with one value, several, or a `Range`.

    Raises:
        ConfigError: a field or value is wrong, or nothing is free.
    """
    fixed: dict[str, Any] = {}
    free: dict[str, tuple[Any, ...] | Range] = {}
    for name, given in axes.items():
        if isinstance(given, Range):
            spec = schema.check_name(name)
            for end in (given.low, given.high):
                spec.check(round(end) if spec.type == "int" else end)
            free[name] = given
            continue
        values = values_of(name, given, schema)
        if len(values) == 1:
            fixed[name] = values[0]
        else:
            free[name] = values
    if not free:
        raise ConfigError(
            "search has nothing to search: give a flag several values, or --range or --log-range of a field."
        )
    return SearchSpace(schema=schema, fixed=fixed, free=free)
