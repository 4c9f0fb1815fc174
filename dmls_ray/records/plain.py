"""Plain values, as JSON has them: what a rank reports must be plain, or no record could hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dmls_ray.records.codec import encode_json

_MOST_CHARACTERS = 4_000_000
"""Most characters of the JSON of one value."""


class NotPlainError(ValueError):
    """A value is not plain. The message continues its name: `is of type set; give a number`."""


def plain(value: Any) -> Any:
    """The value with texts, truth values, numbers, and lists and dicts of them in place of other types.

    What has one number (a tensor of one element, a scalar of NumPy, a `Decimal`) becomes that number. A number that is
    not finite stays, but within lists and dicts it becomes None, as in the JSON of records.

    Raises:
        NotPlainError: it cannot be made plain.
    """
    if value is None or isinstance(value, bool):
        return value
    try:
        if not isinstance(value, str | Mapping | list | tuple):
            value = _number_of(value)
        if isinstance(value, float):
            return float(value)
        content = encode_json(value, default=_plain_of)
        made: Any = msgspec.json.decode(content)
    except Exception as error:
        # Not the message of the error, which may have a time or an address in it: equal causes have equal reasons.
        raise NotPlainError(
            f"is of type {type(value).__name__} and no record can hold it ({type(error).__name__}); give a number, a "
            "text, or lists and dicts of them"
        ) from error
    if len(content) > _MOST_CHARACTERS:
        raise NotPlainError(f"has more than {_MOST_CHARACTERS:,} characters; write it to a file")
    if isinstance(made, int) and abs(made) >= 2**63:
        raise NotPlainError("has more than 64 bits; give a float")
    return made


def is_number(value: Any) -> bool:
    """Whether a plain value is a number, and so the value of a metric."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain_of(value: Any) -> Any:
    """The number of a value whose type JSON does not have.

    Raises:
        TypeError: it has none.
    """
    number = _number_of(value)
    if number is value:
        raise TypeError(f"{type(value).__name__} is no type of JSON")
    return number


def _number_of(value: Any) -> Any:
    """The number that a value of another type has; the value itself if JSON has its type."""
    if hasattr(value, "item") and not isinstance(value, Mapping):
        return value.item()
    if hasattr(type(value), "__float__") and not isinstance(value, int | float):
        return float(value)
    return value
