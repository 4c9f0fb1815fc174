"""Plain values, which records can hold: `plain_entries` keeps those entries of a dict that are plain or can be made so.

Without it, a value that no record can hold would end the whole sweep, when its record is written or read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import date, time, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any

from dmls_ray.records.validation import DEEPEST

_MOST_NAMED = 5
"""Values that are left out and named in a line."""

_MOST_NAME = 60
"""Characters of a name in a line."""

_INSTEAD: Mapping[type, str] = {
    date: ".isoformat()",
    time: ".isoformat()",
    timedelta: ".total_seconds()",
    complex: ".real and .imag",
    bytes: "base64.b64encode() of it as a text",
    Enum: ".value",
    PurePath: "str() of it",
    Set: "sorted() of it",
}
"""What to give in place of a value of a type."""


class NotPlainError(ValueError):
    """A value is not plain. The message continues its name: `is of type set; give sorted() of it`."""


class _TooLargeError(NotPlainError):
    """A value has too many parts: none of them is kept."""


@dataclass(frozen=True)
class PlainEntries:
    """The entries of a dict that are plain, and why the others are left out."""

    values: dict[str, Any]
    left_out: dict[str, str]
    """Name -> what is wrong with the value, and what to give instead."""


def plain_entries(
    values: Mapping[Any, Any],
    *,
    deepest: int = DEEPEST,
    most: float = math.inf,
    check: Callable[[str, Any], None] = lambda name, value: None,
    finite: bool = False,
) -> PlainEntries:
    """The entries of a dict that are plain: texts, truth values, numbers, and lists and dicts of them.

    What has one number (a tensor of one element, a scalar of NumPy, a `Decimal`) becomes that number.

    Args:
        values: the values by name.
        deepest: most levels of lists and dicts within one another, the given one included.
        most: most numbers, texts and characters in one value.
        check: raises a `NotPlainError` if a plain value cannot have this name.
        finite: whether a number in a list or dict that is not finite becomes None, as in the JSON of records, and is
            named among what is left out.
    """
    left_out: dict[str, str] = {}
    kept: dict[str, Any] = {}
    for key, value in values.items():
        name = _text_of(key)
        reader = _Reader(deepest, most, finite)
        try:
            plain = reader.read(value, name, frozenset([id(values)]))
            check(name, plain)
            if name in kept:
                raise NotPlainError("is the name of two values; give them two names")
        except Exception as error:  # noqa: BLE001 - a value's own code may raise anything when it is read
            left_out[name] = _why(error, value)
        else:
            kept[name] = plain
            left_out |= reader.left_out
    return PlainEntries(kept, left_out)


def describe_left_out(left_out: Mapping[str, str]) -> str:
    """What is left out and why, in one line; empty if nothing is."""
    texts = [f"{_short(name)} {why}" for name, why in left_out.items()]
    if len(texts) > _MOST_NAMED:
        texts = [*texts[:_MOST_NAMED], f"and {len(texts) - _MOST_NAMED} more"]
    return "; ".join(texts)


def not_finite(value: float) -> str:
    """Why a number that is not finite is left out: the JSON of records has none."""
    return f"has the value {value}; give a finite number"


class _Reader:
    """Makes one value plain; entries of dicts within it that are not plain are left out.

    Args:
        deepest: most levels of lists and dicts within one another.
        most: most parts of the value.
        finite: whether numbers within the value are to be finite.
    """

    def __init__(self, deepest: int, most: float, finite: bool) -> None:
        self.left_out: dict[str, str] = {}
        self._deepest, self._most, self._finite = deepest, most, finite
        self._parts = 0

    def read(self, value: Any, name: str, around: frozenset[int]) -> Any:
        """The plain value.

        Args:
            value: the value.
            name: its name, after those of the dicts around it.
            around: the lists and dicts around it, by their ids.

        Raises:
            NotPlainError: it is not plain.
            Exception: whatever the value raises when it is read.
        """
        self._count(len(value) if isinstance(value, str) else 1)
        if not isinstance(value, Mapping | list | tuple):
            plain = _scalar(value)
            is_within = len(around) > 1
            if self._finite and is_within and isinstance(plain, float) and not math.isfinite(plain):
                self.left_out[name] = not_finite(plain)
                return None
            is_read = plain is None or isinstance(plain, bool | int | float | str)
            return plain if is_read else self.read(plain, name, around)

        if id(value) in around:
            raise NotPlainError("contains itself; give a copy that does not")
        if len(around) >= self._deepest:
            raise NotPlainError(f"has more than {DEEPEST} lists and dicts within one another; give fewer")
        within = around | {id(value)}
        if isinstance(value, Mapping):
            return self._entries(value, name, within)
        # All items or none: without one, the others would have other places.
        return [self.read(item, name, within) for item in value]

    def _entries(self, values: Mapping[Any, Any], above: str, around: frozenset[int]) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, value in values.items():
            entry = _text_of(key)
            name = f"{above}.{entry}"
            try:
                self._count(len(entry))
                if entry in plain:
                    raise NotPlainError("is the name of two values; give them two names")
                plain[entry] = self.read(value, name, around)
            except _TooLargeError:
                raise
            except Exception as error:  # noqa: BLE001 - as in `plain_entries`
                self.left_out[name] = _why(error, value)
        return plain

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > self._most:
            raise _TooLargeError(f"has more than {self._most:,} numbers and characters; write it to a file")


def _scalar(value: Any) -> Any:
    """A value that is neither list nor dict as an object of exactly a plain type, or what the array of it holds."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int.__int__(value)
        if abs(number) >= 2**63:
            raise NotPlainError("has more than 64 bits; give a float")
        return number
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)

    kind = type(value)
    if hasattr(value, "item") and getattr(value, "size", None) is not None:
        # The size of a tensor is a method.
        count = value.numel() if hasattr(value, "numel") else value.size
        if count != 1:
            raise NotPlainError(f"is of type {kind.__name__} with {count} elements; give one number, or .tolist()")
        # `item` of a masked array ignores the mask.
        if hasattr(value, "filled") and value.mask.any():
            raise NotPlainError("is masked; give a number")
        return value.item()
    if hasattr(kind, "__float__"):
        return float(value)
    instead = next((text for base, text in _INSTEAD.items() if isinstance(value, base)), "")
    raise NotPlainError(f"is of type {kind.__name__}; give {instead or 'numbers, texts, lists or dicts of them'}")


def _why(error: Exception, value: Any) -> str:
    if isinstance(error, NotPlainError):
        return str(error)
    # Not its message, which may have a time or an address in it: equal causes have equal reasons.
    return f"is of type {type(value).__name__} and cannot be read ({type(error).__name__}); give a number or a text"


def _text_of(key: Any) -> str:
    """The key of a dict as the name of its entry."""
    try:
        return str.__str__(key) if isinstance(key, str) else str(key)
    except Exception:  # noqa: BLE001 - as in `plain_entries`
        return f"a key of type {type(key).__name__}"


def _short(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= _MOST_NAME else f"{line[:_MOST_NAME]}..."
