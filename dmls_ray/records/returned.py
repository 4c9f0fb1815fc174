"""The one check of what a rank reports: plain values that fit the record they end in."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from dmls_ray.records.epoch_and_rank import EpochRecord, RankRecord
from dmls_ray.records.model import RUN_FIELDS, RunRecord
from dmls_ray.records.names import OF_A_METRIC, RESERVED, distinct_names
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.plain import NotPlainError, PlainEntries, not_finite, plain_entries
from dmls_ray.records.training_metrics import BY_NAME, RETURNABLE, is_loss
from dmls_ray.records.validation import DEEPEST, check_picture

RUN_FACTS = ("device", "backend", "fast_units", "vnni", "compile_cache", "not_recorded")
"""Fields of a run that are equal on all of its ranks, and no numbers; those of rank 0 count."""

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


RECORDED = frozenset((*RUN_FIELDS, *(item.name for item in fields(EpochRecord)), *RESERVED)) - {"epoch"}
"""Names of what is recorded of every run and epoch; no metric has the number of an epoch."""

_RESULT_NAMES = frozenset(item.name for item in fields(_Result))
_RUN_NAMES = frozenset(_RunPart.__struct_fields__)


MOST_OF_A_METRIC = 1_000_000
"""Most numbers, texts and characters in one value that a training function reports."""


def reported_metrics(values: Any, taken: Collection[str] = (), *, deepest: int = DEEPEST) -> PlainEntries:
    """What a user's training function returned or emitted: what can be recorded, and why the rest cannot.

    Args:
        values: a dict of values by name; None: there are none; anything else counts as a value named `returned`.
        taken: names of other columns; a metric with one of these names is recorded as `measured_...`.
        deepest: most levels of lists and dicts within one another, the given one included.
    """
    named = _as_dict(values)
    picture = named.pop("picture", None)
    entries = plain_entries(named, deepest=deepest, most=MOST_OF_A_METRIC, check=_check_number, finite=True)
    lost = {name: not_finite(value) for name, value in entries.values.items() if _is_lost(name, value)}
    left_out = lost | entries.left_out
    columns = distinct_names(entries.values, taken, OF_A_METRIC)
    kept = {columns[name]: None if name in lost else value for name, value in entries.values.items()}
    if why := _wrong_with(picture):
        return PlainEntries(kept, {**left_out, "picture": why})
    return PlainEntries(kept if picture is None else {**kept, "picture": picture}, left_out)


def _is_lost(name: str, value: Any) -> bool:
    """Whether a record would have null for a number. A loss that is not finite makes the run `diverged`."""
    return isinstance(value, float) and not math.isfinite(value) and not is_loss(name)


def _as_dict(values: Any) -> dict[Any, Any]:
    if values is None:
        return {}
    if isinstance(values, Mapping):
        with contextlib.suppress(Exception):  # a mapping of the user's, of which then nothing can be kept
            return dict(values)
    return {"returned": values}


def _check_number(name: str, value: Any) -> None:
    """Refuse the value of a metric that tables have if it is not a number.

    Raises:
        NotPlainError: with what is wrong.
    """
    if name in RETURNABLE and (isinstance(value, bool) or not isinstance(value, int | float | None)):
        raise NotPlainError(f"is of type {type(value).__name__}; give a number")


def _wrong_with(picture: Any) -> str:
    """Why a picture cannot be recorded; empty if it can, or there is none."""
    if picture is None:
        return ""
    if not isinstance(picture, str):
        return f"is of type {type(picture).__name__}; give base64.b64encode(jpeg).decode()"
    try:
        check_picture("", picture)
    except ValueError as error:
        return str(error).strip()
    return ""


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
    reported = _as_dict(run.get("returned"))
    if why := _wrong_with(reported.pop("picture", None)):
        raise ValueError(f"picture in {what} {why}.")
    _refuse_left_out(plain_entries(reported, deepest=DEEPEST, most=MOST_OF_A_METRIC, check=_check_number), what)
    numbers = {name: value for name, value in result.items() if name not in _RESULT_NAMES}
    numbers |= {name: value for name, value in run.items() if name not in _RUN_NAMES}
    for name, value in numbers.items():
        if not isinstance(value, int | float | None):
            raise ValueError(f"{name} in {what} is of type {type(value).__name__}; give a number.")
    return result


def checked_epoch(values: Mapping[str, Any], what: str) -> EpochRecord:
    """The epoch that a rank emitted, with plain values of the types that records have.

    Raises:
        ValueError: as by `checked_result`.
    """
    epoch = plain_values(values, what)
    _check_types(epoch, EpochRecord, what)
    return EpochRecord(**epoch)


def plain_values(values: Any, what: str, *, deepest: int = DEEPEST) -> dict[str, Any]:
    """The values as plain ones, as by `plain_entries`, all of them.

    Args:
        values: the values by name.
        what: says in a message whose values these are.
        deepest: most levels of lists and dicts within one another, the given one included.

    Raises:
        ValueError: a value is not plain.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{what} is of type {type(values).__name__}; give a dict of plain values.")
    return _refuse_left_out(plain_entries(values, deepest=deepest), what)


def _refuse_left_out(entries: PlainEntries, what: str) -> dict[str, Any]:
    for name, why in entries.left_out.items():
        raise ValueError(f"{name} in {what} {why}.")
    return entries.values


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
