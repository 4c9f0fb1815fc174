"""Types of fields: how a value is read from a text, checked, and handed to the code that has the field.

A value is kept as a plain one: a number, a text, true, false, None, or a tuple of such. Hashes and records have these.
`native` makes of it what the annotation names: a list, a path, a member of an enumeration.
"""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

from dmls_ray.config.value_texts import TRUTHS, as_flag_value, guess_value


class UnfitError(Exception):
    """A value is not of a type. The message is empty, or says why and the way out: `is not finite; give a number`."""


class FieldType:
    """A type of values: any plain value as it is.

    A text that is written as a number is a number here, and one in quotation marks is a text.
    """

    name = "value"
    """Short name, for the help of a flag."""
    singular, plural = "a plain value", "plain values"
    """What one value and several are called in a message."""
    choices: tuple[Any, ...] = ()
    """The allowed plain values; empty if there are none to list."""
    has_parts = False
    """One value has several parts, as a list has."""
    is_converted = False
    """What code gets is another object than the plain value."""

    def parse(self, text: str) -> Any:
        """The plain value that a text of a command line means.

        Raises:
            UnfitError: it means none.
        """
        return self.check(guess_value(text))

    def check(self, value: Any) -> Any:
        """The plain value of a value that code has given.

        Raises:
            UnfitError: it is of another type.
        """
        value = without_numpy(value)
        if isinstance(value, list | tuple):
            return tuple(self.check(item) for item in value)
        if isinstance(value, float):
            return _finite(value)
        if isinstance(value, enum.Enum) or not isinstance(value, bool | int | str | None):
            raise UnfitError("is no plain value; give a number, a text, true, false or none")
        return value if isinstance(value, bool | str | None) else _of_64_bits(value)

    def native(self, plain: Any) -> Any:
        """What the annotation names, from its plain value."""
        return plain


class WholeNumber(FieldType):
    """`int`; 1e5, which has no fraction, is one, too."""

    name, singular, plural = "int", "a whole number", "whole numbers"

    def parse(self, text: str) -> int:
        try:
            value: float = int(text)
        except ValueError:
            value = _float_of(text)
        return self.check(value)

    def check(self, value: Any) -> int:
        value = without_numpy(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            return int(value)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise UnfitError
        return _of_64_bits(value.__index__())


class Number(FieldType):
    """`float`; a whole number is one, too."""

    name, singular, plural = "float", "a number", "numbers"

    def parse(self, text: str) -> float:
        return self.check(_float_of(text))

    def check(self, value: Any) -> float:
        value = without_numpy(value)
        if isinstance(value, bool | str) or not hasattr(value, "__float__"):
            raise UnfitError
        try:
            return _finite(float(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise UnfitError from error


class Text(FieldType):
    """`str`."""

    name, singular, plural = "str", "a text", "texts"

    def parse(self, text: str) -> str:
        return text

    def check(self, value: Any) -> str:
        value = without_numpy(value)
        if not isinstance(value, str):
            raise UnfitError
        return str(value.value) if isinstance(value, enum.Enum) else value


class Truth(FieldType):
    """`bool`."""

    name, singular, plural = "bool", "true or false", "values true or false"

    def parse(self, text: str) -> bool:
        if text.lower() not in TRUTHS:
            raise UnfitError("is unknown; choose from true, false")
        return TRUTHS[text.lower()]

    def check(self, value: Any) -> bool:
        value = without_numpy(value)
        if not isinstance(value, bool):
            raise UnfitError
        return value


class PathName(FieldType):
    """`pathlib.Path`, or another class of `pathlib`."""

    name, singular, plural = "path", "a path", "paths"
    is_converted = True

    def __init__(self, make: Callable[[str | os.PathLike[str]], PurePath]) -> None:
        self._make = make

    def parse(self, text: str) -> str:
        return str(self._make(text))

    def check(self, value: Any) -> str:
        if not isinstance(value, str | os.PathLike):
            raise UnfitError
        return str(self._make(value))

    def native(self, plain: str) -> PurePath:
        return self._make(plain)


class OneOf(FieldType):
    """`Literal`, or the names in a registry."""

    def __init__(self, choices: Sequence[Any]) -> None:
        kinds = {type(choice).__name__ for choice in choices}
        self.name = kinds.pop() if len(kinds) == 1 else "value"
        self.choices = tuple(choices)
        self.singular = self.plural = f"one of {', '.join(map(as_flag_value, choices))}"

    def parse(self, text: str) -> Any:
        same = [choice for choice in self.choices if as_flag_value(choice) == text]
        if len(same) > 1:
            raise UnfitError(f"may be {' or '.join(map(repr, same))}; call sweep() from Python, where they differ")
        return same[0] if same else self.check(guess_value(text))

    def check(self, value: Any) -> Any:
        value = without_numpy(value)
        for choice in self.choices:
            if value == choice and isinstance(value, bool) == isinstance(choice, bool):
                return choice
        raise UnfitError(f"is unknown; choose from {', '.join(map(as_flag_value, self.choices))}")


class Member(FieldType):
    """A member of an enumeration, by its name or its value. Its plain value is its name."""

    is_converted = True

    def __init__(self, members: Sequence[enum.Enum]) -> None:
        self._members = tuple(members)
        self._cls = type(members[0])
        self.name = self._cls.__name__
        self.choices = tuple(member.name for member in members)
        self.singular = self.plural = f"one of {', '.join(self.choices)}"

    def parse(self, text: str) -> str:
        alias = [member for name, member in self._cls.__members__.items() if name == text]
        by_value = [member for member in self._members if as_flag_value(member.value) == text]
        similar = [member for member in self._members if member.name.lower() == text.lower()]
        for found in (alias, by_value, similar):
            if len(found) == 1 and found[0] in self._members:
                return found[0].name
        raise UnfitError(f"is unknown; choose from {', '.join(self.choices)}")

    def check(self, value: Any) -> str:
        if isinstance(value, str) and not isinstance(value, self._cls):
            return self.parse(value)
        value = without_numpy(value)
        for member in self._members:
            is_member = value is member
            if is_member or (member.value == value and isinstance(member.value, bool) == isinstance(value, bool)):
                return member.name
        raise UnfitError(f"is unknown; choose from {', '.join(self.choices)}")

    def native(self, plain: str) -> enum.Enum:
        return self._cls[plain]


def without_numpy(value: Any) -> Any:
    """A scalar of NumPy, or a tensor of one element, as a value of Python."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def _float_of(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UnfitError from error


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise UnfitError("is not finite; give a number")
    return value


def _of_64_bits(value: int) -> int:
    if abs(value) >= 2**63:
        raise UnfitError("has more than 64 bits; give a smaller one")
    return value
