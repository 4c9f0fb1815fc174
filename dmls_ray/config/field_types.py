"""Types of fields, from their annotations: plain values for hashes and records, and what the code gets.

A plain value is a number, a text, true, false, None, or a tuple of these. msgspec checks plain values. `to_native`
makes of one what the annotation names: a list, a path, a member of an enumeration.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import math
import os
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Sequence, Set
from dataclasses import Field, dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from dmls_ray.config.value_texts import as_flag_value

_CONTAINERS: dict[Any, Any] = {
    list: list, tuple: tuple, set: set, frozenset: frozenset,
    collections.abc.Sequence: None, collections.abc.MutableSequence: list, collections.abc.Collection: None,
    collections.abc.Iterable: None, collections.abc.Set: frozenset, collections.abc.MutableSet: set,
}  # fmt: skip
"""Annotation -> the type that the code gets; None: that of the default, or else a list."""

_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""Texts of a field that is true or false, besides 1 and 0."""


class UnsupportedError(Exception):
    """Values of a type have no plain form; the message is the name of the type."""


@dataclass(frozen=True)
class FieldType:
    """A type of values; by default any plain value."""

    plain: Any = Any
    """Type of its plain values, for msgspec."""
    to_plain: Callable[[Any], Any] = lambda value: value
    """Makes of a value, given in Python or as a text, what msgspec converts to a plain value."""
    to_native: Callable[[Any], Any] | None = None
    """Makes of a plain value what the annotation names; None: that is the plain value."""

    def convert(self, value: Any, *, strict: bool = False) -> Any:
        """The plain value of a value.

        Args:
            value: given in Python, or the text of a flag.
            strict: a text is no number.

        Raises:
            ValueError: the value is of another type, or out of bounds.
        """
        return _settled(msgspec.convert(self.to_plain(without_numpy(value)), self.plain, strict=strict))


def annotation_of(config_class: type, item: Field[Any]) -> Any:
    """The annotation of a field of a dataclass, evaluated where the field is defined; its text if it cannot be."""
    owner = next(
        base
        for base in reversed(config_class.__mro__)
        if getattr(base, "__dataclass_fields__", {}).get(item.name) is item
    )
    names = {**vars(sys.modules.get(owner.__module__, types)), **vars(owner)}
    alone = types.SimpleNamespace(__annotations__={item.name: item.type})
    try:
        return typing.get_type_hints(alone, globalns=names, include_extras=True)[item.name]
    except Exception:  # noqa: BLE001 - annotations are code of the user, and may name what only a type checker imports
        return str(item.type)


def field_type(hint: Any, default: Any = None) -> FieldType:
    """The type of an annotation.

    Args:
        hint: the annotation.
        default: the default of the field.

    Raises:
        UnsupportedError: values of this type have no plain form.
    """
    if isinstance(hint, dataclasses.InitVar):
        return field_type(hint.type, default)
    hint = getattr(hint, "__supertype__", hint)  # of a NewType
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin is Annotated:
        annotated = field_type(arguments[0], default)
        return replace(annotated, plain=Annotated[(annotated.plain, *hint.__metadata__)])
    if origin in (types.UnionType, typing.Union):
        return _union(arguments, default)
    if hint is bool:
        return FieldType(bool, _truth)
    if hint is str:
        return FieldType(str, _text)
    if hint in (int, float, types.NoneType) or origin is Literal:
        return _checked(FieldType(hint))
    if origin in _CONTAINERS:
        return _container(origin, arguments, default)
    if origin is os.PathLike:
        return _path(pathlib.Path)
    if isinstance(hint, type) and (of_class := _of_class(hint)):
        return of_class
    if hint in (object, Any) or _is_plain(default):
        return FieldType()
    raise UnsupportedError(_name_of(hint))


def without_numpy(value: Any) -> Any:
    """A scalar of NumPy, or a tensor of one element, as a value of Python."""
    return value.item() if getattr(value, "ndim", 1) == 0 else value


def _checked(kind: FieldType) -> FieldType:
    """The type, if msgspec supports it."""
    try:
        msgspec.inspect.type_info(kind.plain)
    except TypeError as error:
        raise UnsupportedError(_name_of(kind.plain)) from error
    return kind


def _settled(value: Any) -> Any:
    """A converted value, with tuples in place of lists and sets.

    Raises:
        ValueError: it is no plain value.
    """
    value = without_numpy(value)
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, enum.Enum) and isinstance(value, int | str):
        return value.value
    if isinstance(value, set | frozenset):
        return tuple(sorted(map(_settled, value), key=repr))
    if isinstance(value, list | tuple):
        return tuple(map(_settled, value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("expected a finite number")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("expected a number of at most 64 bits")
    if not isinstance(value, int | float | str):
        raise ValueError("expected a number, a text, true, false or none")
    return value


def _text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _truth(value: Any) -> Any:
    return _TRUTHS.get(value.lower(), value) if isinstance(value, str) else value


def _of_class(cls: type) -> FieldType | None:
    if issubclass(cls, enum.Enum) and not issubclass(cls, enum.Flag):
        return _enumeration(cls)
    if issubclass(cls, pathlib.PurePath):
        return _path(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        hints = typing.get_type_hints(cls, include_extras=True)
        items = [field_type(hints.get(name, Any)) for name in cls._fields]
        return _sequence(items, lambda values: cls(*values), is_open=False)
    return None


def _enumeration(cls: type[enum.Enum]) -> FieldType:
    """A member by its name or its value; its plain value is its name."""
    names = {as_flag_value(member.value).lower(): member.name for member in cls}
    names |= {name.lower(): member.name for name, member in cls.__members__.items()}

    def to_plain(value: Any) -> Any:
        if isinstance(value, cls):
            return value.name
        return names.get(as_flag_value(value).lower(), value)

    def to_native(value: Any) -> Any:
        return cls[value] if isinstance(value, str) else value

    return FieldType(Literal[tuple(member.name for member in cls)], to_plain, to_native)


def _path(cls: type[pathlib.PurePath]) -> FieldType:
    def to_plain(value: Any) -> Any:
        return str(cls(value)) if isinstance(value, str | os.PathLike) else value

    def to_native(value: Any) -> Any:
        return cls(value) if isinstance(value, str) else value

    return FieldType(str, to_plain, to_native)


def _container(origin: Any, arguments: Sequence[Any], default: Any) -> FieldType:
    of_default = type(default) if type(default) in _CONTAINERS else list
    make = _CONTAINERS[origin] or of_default
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return _sequence([field_type(argument) for argument in arguments], make, is_open=False)
    return _sequence([field_type(arguments[0] if arguments else Any)], make, is_open=True)


def _sequence(items: Sequence[FieldType], make: Callable[[Any], Any], *, is_open: bool) -> FieldType:
    """A list, a tuple or a set: of any length with one type of items, or of one type for each item."""
    types_of_items = tuple(item.plain for item in items)
    plain: Any = tuple[types_of_items]  # type: ignore[valid-type]
    if is_open:
        (item,) = types_of_items
        plain = frozenset[item] if make in (set, frozenset) else tuple[item, ...]  # type: ignore[valid-type]

    def types_of(values: Sequence[Any]) -> list[FieldType]:
        return [*items, *[items[0]] * (len(values) - len(items))]

    def to_plain(value: Any) -> Any:
        values = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(values, Sequence | Set) or isinstance(values, str | bytes):
            return values
        values = [*values]
        return [item.to_plain(without_numpy(part)) for item, part in zip(types_of(values), values, strict=False)]

    def to_native(value: Any) -> Any:
        if not isinstance(value, tuple):
            return value
        natives = [item.to_native or (lambda part: part) for item in types_of(value)]
        return make([native(part) for native, part in zip(natives, value, strict=False)])

    return _checked(FieldType(plain, to_plain, to_native))


def _union(arguments: Sequence[Any], default: Any) -> FieldType:
    members, unsupported = [], False
    is_text = str in arguments and isinstance(default, str)
    for argument in arguments:
        if is_text and isinstance(argument, type) and issubclass(argument, os.PathLike):
            continue  # of str | Path, the code gets the type of the default
        try:
            members.append(field_type(argument, default))
        except UnsupportedError:
            unsupported = True
    is_none_alone = all(member.plain is types.NoneType for member in members)
    if is_none_alone or (unsupported and default is not None and not _is_plain(default)):
        raise UnsupportedError(" | ".join(map(_name_of, arguments)))
    converters = [member.to_native for member in members if member.to_native]

    def to_plain(value: Any) -> Any:
        for member in members:
            value = member.to_plain(value)
        return value

    def to_native(value: Any) -> Any:
        for convert in converters:
            value = convert(value)
        return value

    plain: Any = typing.Union[tuple(member.plain for member in members)]  # noqa: UP007 - their number is not known
    return _checked(FieldType(plain, to_plain, to_native if converters else None))


def _is_plain(value: Any) -> bool:
    try:
        return FieldType().convert(value) is not None
    except ValueError:
        return False


def _name_of(hint: Any) -> str:
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    return str(hint).replace("typing.", "")
