"""What the ranks of a run report, as plain values, and as parts of its record.

A plain value is one that JSON has: what a rank reports must be plain, or no record could hold it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec

from dmls_ray.records.codec import Picture, encode_json
from dmls_ray.records.metrics import BY_NAME, is_loss
from dmls_ray.records.model import OF_A_METRIC, RESERVED, RUN_FIELDS, EpochRecord, RunValues, distinct_names

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
        if hasattr(type(value), "__float__") and not isinstance(value, int):
            value = _number_of(value)
        if isinstance(value, float):
            return float(value)
        content = encode_json(value, default=_number_of)
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


def _number_of(value: Any) -> Any:
    """The number that a value has whose type JSON does not have.

    Raises:
        Exception: it has none.
    """
    return value.item() if hasattr(value, "item") else float(value)


Part = TypeVar("Part", RunValues, EpochRecord)

TAKEN = frozenset((*RUN_FIELDS, *EpochRecord.__struct_fields__, *BY_NAME, *RESERVED)) - {"epoch"}
"""Names of what is recorded of every run and epoch; no metric has the number of an epoch."""


def part_of(values: Mapping[str, Any], cls: type[Part], what: str) -> Part:
    """A part of a record of these plain values by name. Numbers that have no field are metrics, other values facts.

    What is None, and a number that is not finite, is left out.

    Args:
        values: the values.
        cls: the class of the part.
        what: says in a message whose values these are.

    Raises:
        ValueError: a value has the wrong type; with its name.
    """
    part: dict[str, Any] = {"metrics": {}, "facts": {}}
    for name, value in values.items():
        if value is None:
            continue
        if name in cls.__struct_fields__:
            part[name] = value
        elif is_number(value):
            part["metrics"] |= {name: value} if math.isfinite(value) else {}
        elif name in BY_NAME:
            raise ValueError(f"{name} in {what} is of type {type(value).__name__}; give a number.")
        else:
            part["facts"][name] = value
    try:
        return msgspec.convert(part, cls)
    except msgspec.ValidationError as error:
        raise ValueError(f"{what} does not fit a record ({error}).") from error


def checked_epoch(epoch: EpochRecord, what: str) -> EpochRecord:
    """The epoch that a rank emitted, with plain values of the types that records have.

    Raises:
        ValueError: with the name of the value that is wrong.
    """
    return part_of(plain_values(epoch.values, what), EpochRecord, what)


class Reported:
    """What a user's training function returned or emitted: what can be recorded, and why the rest cannot.

    Args:
        taken: names of other columns; a metric with one of these names is recorded as `measured_...`.
    """

    def __init__(self, taken: Collection[str] = ()) -> None:
        self._taken = {*TAKEN, *taken}
        self._left_out: dict[str, str] = {}
        self.columns: dict[str, str] = {}
        """Name -> its column, of the values that were read last."""

    @property
    def left_out(self) -> str:
        """The values that cannot be recorded and why, in one line; empty if all can."""
        return "; ".join(f"{name} {why}" for name, why in self._left_out.items())

    def read(self, values: Any, filled: Collection[str]) -> dict[str, Any]:
        """What can be recorded of these values, by name. A truth value becomes 0 or 1. Losses need not be finite.

        Args:
            values: a dict of values by name; None: there are none; anything else counts as a value named `returned`.
            filled: metrics of training that these values may fill.
        """
        if values is None:
            return {}
        named = values if isinstance(values, Mapping) else {"returned": values}
        columns = distinct_names(map(str, named), self._taken - {*filled, "picture"}, OF_A_METRIC)
        self.columns = columns
        kept = {}
        for name, value in named.items():
            try:
                kept[columns[str(name)]] = _recordable(str(name), value, must_be_number=str(name) in filled)
            except NotPlainError as error:
                self._left_out[str(name)] = str(error)
        return kept


def _recordable(name: str, value: Any, *, must_be_number: bool) -> Any:
    """The plain value of an entry.

    Raises:
        NotPlainError: it cannot be recorded.
    """
    value = plain(value)
    if isinstance(value, bool):
        return int(value)
    if name == "picture" and value is not None:
        try:
            return msgspec.convert(value, Picture)
        except msgspec.ValidationError as error:
            raise NotPlainError(f"is no JPEG of at most 64 KiB in base64 ({error})") from error
    if isinstance(value, float) and not math.isfinite(value) and not is_loss(name):
        raise NotPlainError(f"has the value {value}; give a finite number")
    if must_be_number and value is not None and not is_number(value):
        raise NotPlainError(f"is of type {type(value).__name__}; give a number")
    if must_be_number and name == "epoch" and value is not None and value % 1:
        raise NotPlainError("is no whole number; give one")
    return value


def plain_values(values: Any, what: str) -> dict[str, Any]:
    """All values as plain ones.

    Raises:
        ValueError: with the name of the value that is not plain.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{what} is of type {type(values).__name__}; give a dict of plain values.")
    kept = {}
    for name, value in values.items():
        try:
            kept[str(name)] = plain(value)
        except NotPlainError as error:
            raise ValueError(f"{name} in {what} {error}.") from error
    return kept
