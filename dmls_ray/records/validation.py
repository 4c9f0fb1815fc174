"""Whether what was read from a file has the form of a record: it may come from anybody.

Of what is refused here nothing goes further, so that tables, reports and figures may rely on the types that records
declare, and folders may be named by a run.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import types
import typing
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

DEEPEST = 16
"""Lists and dicts within one another that a value of a record may have."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
"""What can be a folder's name and nothing more: no separator, no `..`, nothing that a terminal or a page would read."""

MOST_PICTURE = 64 * 1024
"""Characters of a picture in base64."""

_PICTURE = re.compile(r"/9j/[A-Za-z0-9+/]*={0,2}")
"""base64 of what begins as every JPEG does: with the bytes FF D8 FF."""

_SCALARS: frozenset[type] = frozenset((str, int, float, bool, types.NoneType))
_NUMBERS: frozenset[type] = frozenset((int, float, bool))
_NESTED: frozenset[type] = frozenset((list, dict))


def check_fields(
    cls: type,
    values: Mapping[str, Any],
    *,
    any_number: frozenset[str] = frozenset(),
    closed: frozenset[str] = frozenset(),
) -> None:
    """Refuse values that are not of the types that a dataclass declares.

    Args:
        cls: the dataclass.
        values: by field; those that are left out are at their defaults.
        any_number: fields of whole numbers that may have others, too.
        closed: fields whose lists and dicts are not looked into.

    Raises:
        ValueError: with the first field that is wrong.
    """
    # Most records have the same types, so these are compared with those of the last ones at once.
    wrong = _wrong_type(cls, tuple(values), tuple(map(type, values.values())), any_number)
    if wrong:
        raise ValueError(wrong)
    for name, within in _containers(cls):
        if (held := values.get(name)) and name not in closed:
            _check_within(name, held, within)


def check_name(field: str, text: str) -> None:
    """Refuse a text that could lead out of the folder that is to hold a file of this name.

    Raises:
        ValueError: with the field.
    """
    if not _NAME.fullmatch(text):
        raise ValueError(f"{field}={text[:60]!r} is no name; it has letters, digits, _, - and . alone")


def check_moment(field: str, text: str) -> None:
    """Refuse what is neither empty nor a time as ISO 8601 has it.

    Raises:
        ValueError: with the field.
    """
    try:
        _ = text and datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{field}={text[:60]!r} is no time; write it as 2026-01-31T12:00:00+00:00") from error


def check_picture(field: str, text: str) -> None:
    """Refuse what is no small JPEG in base64, as far as can be told without decoding it.

    Raises:
        ValueError: with the field.
    """
    if len(text) > MOST_PICTURE:
        raise ValueError(
            f"{field} has {len(text):,} characters of base64 and not at most {MOST_PICTURE:,}; "
            "give one of fewer pixels or of a lower quality"
        )
    if len(text) % 4 or not _PICTURE.fullmatch(text):
        raise ValueError(f"{field} is no JPEG in base64; give base64.b64encode(jpeg).decode()")


def check_at_least(least: int, values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse, of these, numbers that are less.

    Raises:
        ValueError: with the name.
    """
    for name in names:
        value = values.get(name)
        if value is not None and value < least:
            raise ValueError(f"{name} is {value} and not at least {least}")


def check_facts(field: str, facts: Mapping[str, Any], *, texts: Iterable[str] = (), lists: Iterable[str] = ()) -> None:
    """Refuse, of what describes a machine, its versions or its code, what is no text or number, or no list of these.

    Args:
        field: what to call it.
        facts: by name.
        texts: names that can only be texts.
        lists: names that can only be lists of texts.

    Raises:
        ValueError: with the name.
    """
    if not _SCALARS.issuperset(map(type, facts.values())):
        for name, value in facts.items():
            if type(value) not in _SCALARS and not (type(value) is list and _SCALARS.issuperset(map(type, value))):
                raise ValueError(f"{name} in {field} is neither a text nor a number, and no list of these")
    for name in texts:
        if type(facts.get(name, "")) is not str:
            raise ValueError(f"{name} in {field} is no text")
    for name in lists:
        listed = facts.get(name, [])
        if type(listed) is not list or not {str}.issuperset(map(type, listed)):
            raise ValueError(f"{name} in {field} is no list of texts")


_TEXTS = ("question", "axis", "name", "command", "started_at", "trials", "metric", "mode")
_MOST_REPEATS = 1_000_000


def check_sweep_file(told: Any) -> None:
    """Refuse what does not have the form of a sweep.json.

    Raises:
        ValueError: with what is wrong.
    """
    if not isinstance(told, dict) or type(told.get("schema", 0)) is not int:
        raise ValueError("it is no object with a schema")
    sessions = told.get("sessions", [])
    if not isinstance(sessions, list):
        raise ValueError("sessions are no list")
    for session in sessions:
        _check_session(session)


def _check_session(session: Any) -> None:
    if not isinstance(session, dict):
        raise ValueError(f"a session is {type(session).__name__}")
    for name in _TEXTS:
        if not isinstance(session.get(name, ""), str | None):
            raise ValueError(f"{name} is no text")
    axes, changed, repeats = session.get("axes", {}), session.get("changed", []), session.get("repeats", 0)
    if not isinstance(axes, dict) or not all(isinstance(values, list) for values in axes.values()):
        raise ValueError("axes are no lists by name")
    if not isinstance(changed, list) or not all(isinstance(name, str) for name in changed):
        raise ValueError("changed is no list of names")
    if type(repeats) is not int or not 0 <= repeats <= _MOST_REPEATS:
        raise ValueError(f"repeats is no number up to {_MOST_REPEATS:,}")
    if session.get("mode") == "search" and not isinstance(session.get("metric"), str):
        raise ValueError("a search has no metric")
    for name in ("machine", "versions", "git"):
        facts = session.get(name) or {}
        if not isinstance(facts, dict):
            raise ValueError(f"{name} is no object")
        check_facts(name, facts)


@functools.lru_cache(maxsize=4096)
def _wrong_type(cls: type, names: tuple[str, ...], kinds: tuple[type, ...], any_number: frozenset[str]) -> str:
    allowed = _allowed(cls)
    for name, kind in zip(names, kinds, strict=True):
        fits = allowed[name] | (_NUMBERS if name in any_number else frozenset())
        if kind not in fits:
            wanted = " or ".join(sorted(item.__name__ for item in allowed[name]))
            return f"{name} is {kind.__name__} and not {wanted}"
    return ""


@functools.cache
def _allowed(cls: type) -> dict[str, frozenset[type]]:
    """The types that JSON's values of each field may have."""
    return {name: _of_hint(hint) for name, hint in _hints(cls).items()}


def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls)}


def _of_hint(hint: Any) -> frozenset[type]:
    if isinstance(hint, types.UnionType):
        return frozenset(itertools.chain.from_iterable(map(_of_hint, typing.get_args(hint))))
    if typing.get_origin(hint) is typing.Literal:
        return frozenset({str})
    kind: Any = typing.get_origin(hint) or hint
    if kind is Any:
        return _SCALARS | _NESTED
    if kind is float:
        return _NUMBERS
    # What is an object here is an object of JSON's there, and an enum's member a text.
    if dataclasses.is_dataclass(kind):
        return frozenset((dict,))
    return frozenset((str if issubclass(kind, str) else kind,))


@functools.cache
def _containers(cls: type) -> tuple[tuple[str, frozenset[type] | None], ...]:
    """Fields of lists and dicts, and the types of what they hold; None where that is anything."""
    found = []
    for name, hint in _hints(cls).items():
        if typing.get_origin(hint) in (list, dict):
            held = typing.get_args(hint)[-1]
            within = None if held is Any else _of_hint(typing.get_origin(held) or held)
            found.append((name, within))
    return tuple(found)


def _check_within(name: str, held: Any, within: frozenset[type] | None) -> None:
    kinds = set(map(type, held.values() if isinstance(held, dict) else held))
    if within is not None and (wrong := kinds - within - {types.NoneType}):
        raise ValueError(f"{name} holds {', '.join(sorted(kind.__name__ for kind in wrong))}")
    level = [held]
    for _ in range(DEEPEST):
        if _NESTED.isdisjoint(kinds):
            return
        within_one = (inner.values() if isinstance(inner, dict) else inner for inner in level)
        level = [item for inner in within_one for item in inner if type(item) in _NESTED]
        kinds = {kind for inner in level for kind in map(type, inner.values() if isinstance(inner, dict) else inner)}
    raise ValueError(f"{name} has more than {DEEPEST} lists and dicts within one another")
