"""The one check of what a rank reports: plain values that fit the record they end in.

Without it, a value that no record can hold would end the whole sweep, when its record is written or read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from dmls_ray.records.epoch_and_rank import EpochRecord, RankRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import BY_NAME, RETURNABLE
from dmls_ray.records.validation import DEEPEST, check_picture

RUN_FACTS = ("device", "backend", "fast_units", "vnni", "compile_cache")
"""Fields of a run that are equal on all of its ranks, and no numbers."""

DEEPEST_RESULT = DEEPEST + 2
"""Most levels of a result, which has what a user's function returned two levels below."""

_RunPart = msgspec.defstruct(
    "_RunPart",
    [
        *(
            (item.name, item.type, item.default)
            for item in msgspec.structs.fields(RunRecord)
            if item.name in (*BY_NAME, *RUN_FACTS)
        ),
        ("epochs", list[EpochRecord], []),
        ("returned", dict[str, Any], {}),
    ],
)
"""The types of what a result has under `run`: the fields of a `RunRecord` that ranks measure."""


@dataclass(kw_only=True, slots=True)
class _Result(RankRecord):
    """The types of the result of a rank."""

    outcome: Outcome = Outcome.OK
    reason: str = ""
    epochs: list[EpochRecord] = field(default_factory=list)  # type: ignore[assignment]
    run: _RunPart = field(default_factory=_RunPart)  # type: ignore[valid-type]


_RESULT_NAMES = frozenset(item.name for item in fields(_Result))
_RUN_NAMES = frozenset(_RunPart.__struct_fields__)


def checked_result(returned: Any, what: str) -> dict[str, Any]:
    """What an entry point returned, as plain values of the types that records have.

    Args:
        returned: the values by name; see `RankResult.of`.
        what: says in a message whose values these are.

    Raises:
        ValueError: with the name of the value that is wrong.
    """
    result = plain_values(returned, what, deepest=DEEPEST_RESULT)
    _check_types(result, _Result, what)
    run = result.get("run") or {}
    checked_returned(run.get("returned") or {}, what)
    numbers = {name: value for name, value in result.items() if name not in _RESULT_NAMES}
    numbers |= {name: value for name, value in run.items() if name not in _RUN_NAMES}
    for name, value in numbers.items():
        if not isinstance(value, int | float | None):
            raise ValueError(f"{name}={value!r} in {what} is no number.")
    return result


def checked_epoch(values: Mapping[str, Any], what: str) -> EpochRecord:
    """The epoch that a rank emitted, with plain values of the types that records have.

    Raises:
        ValueError: as by `checked_result`.
    """
    epoch = plain_values(values, what)
    _check_types(epoch, EpochRecord, what)
    return EpochRecord(**epoch)


def checked_returned(values: Any, what: str) -> dict[str, Any]:
    """What a user's training function returned, as plain values, after a check of its picture.

    Raises:
        ValueError: as by `plain_values`; or the picture is not a small JPEG in base64.
    """
    picture = values.get("picture") if isinstance(values, Mapping) else None
    # Before the other values, since their error message would contain the whole picture.
    if picture is not None and not isinstance(picture, str):
        kind = type(picture).__name__
        raise ValueError(f"picture in {what} is of type {kind}; give base64.b64encode(jpeg).decode().")
    if picture is not None:
        check_picture(f"picture in {what}", picture)
    return plain_values(values, what)


def plain_values(values: Any, what: str, *, deepest: int = DEEPEST) -> dict[str, Any]:
    """The values as plain ones: tensors and numpy's scalars of one element become numbers.

    Args:
        values: the values by name.
        what: says in a message whose values these are.
        deepest: most levels of lists and dicts within one another, the given one included.

    Raises:
        ValueError: a value is not plain, or the value of a metric that tables have is not a number.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{what} is a {type(values).__name__}; give a dict of plain values.")
    return {str(name): _plain(str(name), value, what, deepest - 1) for name, value in values.items()}


def _plain(name: str, value: Any, what: str, levels: int) -> Any:
    if levels <= 0 and isinstance(value, list | tuple | Mapping):
        raise ValueError(f"{name} in {what} has more than {DEEPEST} lists and dicts within one another; give fewer.")
    if hasattr(value, "item") and getattr(value, "size", None) is not None:
        # The size of a tensor is a method.
        count = value.numel() if hasattr(value, "numel") else value.size
        if count != 1:
            raise ValueError(f"{name} in {what} has {count} elements; give one number, or .tolist().")
        value = value.item()
    if name in RETURNABLE and (isinstance(value, bool) or not isinstance(value, int | float | None)):
        raise ValueError(f"{name}={value!r} in {what} is no number.")
    if isinstance(value, list | tuple):
        return [_plain(name, item, what, levels - 1) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(str(key), item, what, levels - 1) for key, item in value.items()}
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError(f"{name} in {what} has more than 64 bits; give a float.")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{name}={value!r} in {what} is no plain value; give numbers, texts, lists or dicts of them.")


def _check_types(values: Mapping[str, Any], cls: type, what: str) -> None:
    try:
        msgspec.convert(_without_nulls(values), cls)
    except msgspec.ValidationError as error:
        raise ValueError(f"{what} does not fit a record ({error}).") from error


def _without_nulls(value: Any) -> Any:
    """The value without what is None: a record has a default instead, or null."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
