"""Types of fields, from their annotations: plain values for hashes and records, and what the code gets.

A plain value is a number, a text, true, false, None, or a tuple of these. msgspec makes of it what the annotation
names: a list, a path, a member of an enumeration.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import os
import sys
import types
import typing
from collections.abc import Sequence, Set
from dataclasses import Field, dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any, get_args, get_origin

import msgspec
from msgspec import inspect

_SCALARS = (
    inspect.AnyType, inspect.NoneType, inspect.BoolType, inspect.IntType, inspect.FloatType, inspect.StrType,
    inspect.LiteralType,
)  # fmt: skip
_LISTS = (
    inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType, inspect.TupleType,
    inspect.NamedTupleType,
)  # fmt: skip

_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""Texts of a field that is true or false, besides 1 and 0."""


class UnsupportedError(Exception):
    """Values of a type have no plain form; the message is the name of the type."""


@dataclass(frozen=True)
class FieldType:
    """A type of values; by default any plain value."""

    hint: Any = Any
    """The annotation."""

    @cached_property
    def members(self) -> tuple[inspect.Type, ...]:
        """The types of a union, or the only one, without that of None."""
        described = inspect.type_info(self.hint)
        union = described.types if isinstance(described, inspect.UnionType) else (described,)
        return tuple(member for member in union if not isinstance(member, inspect.NoneType))

    @cached_property
    def is_converted(self) -> bool:
        """Whether the code gets another object than the plain value."""
        return not all(isinstance(member, _SCALARS) for member in self.members)

    @property
    def has_lists(self) -> bool:
        """Whether one value may have several parts."""
        return any(isinstance(member, _LISTS) for member in self.members)

    @cached_property
    def enumeration(self) -> type[enum.Enum] | None:
        """The enumeration of which its values are members."""
        return next((member.cls for member in self.members if isinstance(member, inspect.EnumType)), None)

    def convert(self, value: Any, *, strict: bool = False) -> Any:
        """The plain value of a value.

        Args:
            value: given in Python, or the text of a flag.
            strict: a text is no number.

        Raises:
            ValueError: the value is of another type, or out of bounds.
        """
        if isinstance(value, enum.Enum) and self.hint is Any:
            raise ValueError("expected a number, a text, true, false or none")
        native = self.native(plain_value(value), strict=strict)
        # Members have no other plain form that is a word for every enumeration.
        return native.name if isinstance(native, enum.Enum) else plain_value(native)

    def native(self, plain: Any, *, strict: bool = False) -> Any:
        """What the annotation names, from a plain value.

        Raises:
            ValueError: as `convert`.
        """
        if isinstance(plain, str) and self.hint is bool:
            plain = _TRUTHS.get(plain.lower(), plain)
        if isinstance(plain, str) and self.enumeration is not None and plain in self.enumeration.__members__:
            return self.enumeration[plain]
        return msgspec.convert(plain, self.hint, strict=strict, dec_hook=_make_path)


def plain_value(value: Any) -> Any:
    """The plain form of a value.

    Raises:
        ValueError: it has none.
    """
    if hasattr(value, "tolist"):  # of NumPy, or a tensor
        value = value.tolist()
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("expected a finite number")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("expected a number of at most 64 bits")
    if isinstance(value, int | float):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Set):
        return tuple(sorted(map(plain_value, value), key=repr))
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return tuple(map(plain_value, value))
    raise ValueError("expected a number, a text, true, false or none")


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
        hint = hint.type
    if str in get_args(hint) and get_origin(hint) in (types.UnionType, typing.Union):
        # msgspec has no union with a path; of str | Path, the code gets a text.
        texts = [argument for argument in get_args(hint) if not _is_path(argument)]
        hint = typing.Union[tuple(texts)]  # noqa: UP007 - their number is not known
    if hint is object:
        return FieldType()
    try:
        if _is_supported(inspect.type_info(hint)):
            return FieldType(hint)
    except TypeError:  # msgspec does not support it
        pass
    if default is not None and _is_scalar(default):
        return FieldType()
    raise UnsupportedError(hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint))


def _is_path(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, os.PathLike)


def _is_supported(described: Any) -> bool:
    if isinstance(described, inspect.CustomType):
        return issubclass(described.cls, PurePath)
    if isinstance(described, inspect.EnumType):
        return not issubclass(described.cls, enum.Flag)
    parts = [*getattr(described, "types", ()), *getattr(described, "item_types", ())]
    if hasattr(described, "item_type"):
        parts.append(described.item_type)
    if isinstance(described, inspect.NamedTupleType):
        parts = [item.type for item in described.fields]
    return isinstance(described, _SCALARS) or (bool(parts) and all(map(_is_supported, parts)))


def _is_scalar(value: Any) -> bool:
    try:
        return not isinstance(plain_value(value), tuple) and not isinstance(value, enum.Enum)
    except ValueError:
        return False


def _make_path(cls: Any, value: Any) -> Any:
    return cls(value)
