"""The axes of a sweep: fields with their values, however they are given, and the check of these values."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.config.fields import FieldSpec
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
            raise ConfigError(
                f"a range from {self.low} to {self.high} is not possible; give a low end and a larger, finite high end."
            )
        if self.log and self.low <= 0:
            raise ConfigError(f"a logarithmic range cannot start at {self.low}; give more than 0.")

    def __str__(self) -> str:
        return f"any from {self.low:g} to {self.high:g}" + (", by its logarithm" if self.log else "")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def checked(self, spec: FieldSpec) -> Range:
        """The range, whose ends are values of the field.

        Raises:
            ConfigError: they are not.
        """
        for end in (self.low, self.high):
            spec.check(round(end) if spec.type == "int" else end)
        return self

    def draw(self, chance: random.Random) -> float:
        """A random number of the range."""
        if self.log:
            return math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        return chance.uniform(self.low, self.high)


def range_of(name: str, low: Any, high: Any, *, log: bool) -> Range:
    """The range of a field, as flags and files give it.

    Raises:
        ConfigError: the ends are no numbers, or the range is empty.
    """
    try:
        return Range(float(low), float(high), log=log)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the range of {name} from {low} to {high} needs two numbers; give two.") from error


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

    def __str__(self) -> str:
        return "max" if self.share == 1 else f"max:{self.share:g}"

    @classmethod
    def parse(cls, given: Any, spec: FieldSpec) -> Largest | None:
        """What `max`, of a whole number, and `max:0.9` mean; None for any other value.

        Raises:
            ConfigError: the share is not above 0 and at most 1.
        """
        word, colon, share = str(given).partition(":")
        if word != "max" or not (colon or spec.type == "int"):
            return None
        try:
            number = share_of(share) if colon else 1.0
        except ValueError as error:
            raise ConfigError(f"{spec.name}={given}: {error}") from error
        if not 0 < number <= 1:
            raise ConfigError(f"{spec.name}={given}: a share is above 0 and at most 1; give max, or max:0.9.")
        return cls(number)


Axes = Mapping[str, tuple[Any, ...] | Range]
"""Field -> its checked values, none twice, or the range that a search draws from."""


def read_written(spec: FieldSpec, value: Any) -> Any:
    """A value as a sweep file has it: `none` stands for no value, and `max` for the largest.

    Raises:
        ConfigError: it is no value of the field.
    """
    if value == "none":
        return spec.parse(value)
    return Largest.parse(value, spec) or spec.check(value)


def checked_axes(
    given: Mapping[str, Any], schema: Schema, read: Callable[[FieldSpec, Any], Any] = FieldSpec.check
) -> dict[str, tuple[Any, ...] | Range]:
    """The axes that Python or a file gives: field of the schema -> one value, a sequence of values, or a `Range`.

    Args:
        given: the axes.
        schema: the fields.
        read: checks a value.

    Raises:
        ConfigError: there is no such field, or a value is wrong for it.
    """
    axes: dict[str, tuple[Any, ...] | Range] = {}
    for name, values in given.items():
        spec = schema.check_name(name)
        if isinstance(values, Range):
            axes[name] = values.checked(spec)
        else:
            several = values if _has_several_values(values, spec, read) else [values]
            axes[name] = distinct_values(name, [read(spec, value) for value in several])
    return axes


def distinct_values(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The values of an axis, none twice.

    Raises:
        ConfigError: there is none.
    """
    if not values:
        raise ConfigError(f"{name} has no value; give at least one.")
    # By what they look like: 1 and True are equal, and not the same.
    return tuple({repr(value): value for value in values}.values())


def _has_several_values(given: Any, spec: FieldSpec, read: Callable[[FieldSpec, Any], Any]) -> bool:
    """Whether what is given for an axis are its values; where one value has parts, a tuple, or its parts, is one."""
    is_array = isinstance(given, Iterable) and hasattr(given, "tolist")
    if not is_array and (not isinstance(given, Sequence | set | frozenset) or isinstance(given, str | bytes)):
        return False
    if not spec.has_lists:
        return True
    if isinstance(given, tuple):
        return False
    try:
        for item in given:
            read(spec, item)
    except ConfigError:
        return False
    return True
