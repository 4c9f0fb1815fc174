"""Types of fields that are composed of others: lists, tuples, sets and unions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dmls_ray.config.field_types import (
    FieldType,
    Member,
    Number,
    OneOf,
    Text,
    Truth,
    UnfitError,
    WholeNumber,
    without_numpy,
)
from dmls_ray.config.value_texts import BRACKETS, guess_value, parts_of


class Several(FieldType):
    """A list, a tuple or a set: of any length, or of one type for each of its items. Its plain value is a tuple.

    Args:
        make: the type that the code gets.
        items: the type of all items; several of them: of each item.
        is_open: any number of items is right.
    """

    name = "tuple"
    has_parts = is_converted = True

    def __init__(self, make: Callable[[list[Any]], Any], items: Sequence[FieldType], *, is_open: bool) -> None:
        self._make, self._items, self._is_open = make, tuple(items), is_open
        kinds = {item.singular for item in items}
        what = " and ".join(item.singular for item in items)
        if is_open:
            what = items[0].plural
        elif len(kinds) == 1 and len(items) > 1:
            what = f"{len(items)} {items[0].plural}"
        self.singular, self.plural = f"{what}, separated by commas", f"lists of {what} in brackets"

    def parse(self, text: str) -> tuple[Any, ...]:
        parts = parts_of(text)
        if parts is None:
            raise UnfitError
        items = self._types_of(len(parts))
        if any(item.has_parts and part[:1] not in BRACKETS for item, part in zip(items, parts, strict=True)):
            raise UnfitError
        return self._ordered([item.parse(part) for item, part in zip(items, parts, strict=True)])

    def check(self, value: Any) -> tuple[Any, ...]:
        values = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(values, Sequence | set | frozenset) or isinstance(values, str | bytes):
            raise UnfitError(f"is no tuple; give {self.singular}")
        items = self._types_of(len(values))
        return self._ordered([item.check(part) for item, part in zip(items, values, strict=True)])

    def native(self, plain: tuple[Any, ...]) -> Any:
        return self._make([item.native(part) for item, part in zip(self._types_of(len(plain)), plain, strict=True)])

    def _types_of(self, count: int) -> Sequence[FieldType]:
        if self._is_open:
            return self._items * count
        if count != len(self._items):
            raise UnfitError
        return self._items

    def _ordered(self, values: list[Any]) -> tuple[Any, ...]:
        """The items; those of a set in one order, whatever the order given."""
        return tuple(sorted(set(values), key=repr)) if self._make in (set, frozenset) else tuple(values)


class Nothing(FieldType):
    """`None` as a member of a union."""

    name, singular, plural = "none", "none", "none"

    def parse(self, text: str) -> None:
        return self.check(None if text.lower() == "none" else text)

    def check(self, value: Any) -> None:
        if value is not None:
            raise UnfitError


class AnyOf(FieldType):
    """A union: the first of its types that a value fits, whose own type a value keeps where it can.

    A text that is written as a number is one if the union has numbers, and else stays a text.
    """

    is_converted = True

    def __init__(self, members: Sequence[FieldType]) -> None:
        order = (Nothing, WholeNumber, Number, Truth, OneOf, Member, Several)
        by_type = {kind: place for place, kind in enumerate(order)}
        # Paths and texts, which any text fits, come last, in the order given.
        self.members = sorted(members, key=lambda member: by_type.get(type(member), len(order)))
        self.singular = self.plural = ", or ".join(member.singular for member in self.members)
        self.has_parts = any(member.has_parts for member in members)
        self._has_texts = any(type(member) in (Text, FieldType) for member in members)

    def parse(self, text: str) -> Any:
        guess = guess_value(text)
        # Only what looks like a number or a truth is one: 007 is a name here, and 1 is not true.
        guessed = [member for member in self.members if isinstance(member, Nothing | WholeNumber | Number | Truth)]
        is_fraction = isinstance(guess, float) and self._has_texts
        exact = [member for member in guessed if isinstance(member, Number)] if is_fraction else guessed
        if not isinstance(guess, str) and (found := _fitting(exact, guess)):
            return found[1]
        for member in self.members:
            if member in guessed or (member.has_parts and not set(text) & {*BRACKETS, ","}):
                continue
            try:
                return guess if isinstance(member, Text) and isinstance(guess, str) else member.parse(text)
            except UnfitError:
                continue
        raise UnfitError

    def check(self, value: Any) -> Any:
        return self._fitting(value)[1]

    def native(self, plain: Any) -> Any:
        return self._fitting(plain)[0].native(plain)

    def _fitting(self, value: Any) -> tuple[FieldType, Any]:
        found = _fitting(self.members, value)
        if found is None:
            raise UnfitError
        return found


def _fitting(members: Sequence[FieldType], value: Any) -> tuple[FieldType, Any] | None:
    """The type that a value fits, and its plain value; if there are several, one of which the value keeps its type."""
    fitting = []
    for member in members:
        try:
            fitting.append((member, member.check(value)))
        except UnfitError:
            continue
    kind = type(without_numpy(value))
    return next((item for item in fitting if type(item[1]) is kind), fitting[0] if fitting else None)
