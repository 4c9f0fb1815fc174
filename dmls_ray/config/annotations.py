"""The type of a field from its annotation."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import os
import pathlib
import sys
import types
import typing
from collections.abc import Sequence
from dataclasses import Field
from typing import Any, Literal

from dmls_ray.config.composed_types import AnyOf, Nothing, Several
from dmls_ray.config.field_types import (
    FieldType,
    Member,
    Number,
    OneOf,
    PathName,
    Text,
    Truth,
    UnfitError,
    WholeNumber,
)

_SCALARS: dict[Any, type[FieldType]] = {
    int: WholeNumber, float: Number, str: Text, bool: Truth, object: FieldType, Any: FieldType,
}  # fmt: skip

_CONTAINERS: dict[Any, Any] = {
    list: list, tuple: tuple, set: set, frozenset: frozenset,
    collections.abc.Sequence: None, collections.abc.MutableSequence: list, collections.abc.Collection: None,
    collections.abc.Iterable: None, collections.abc.Set: frozenset, collections.abc.MutableSet: set,
}  # fmt: skip
"""Annotation -> the type that the code gets; None: that of the default, or else a list."""


class UnsupportedError(Exception):
    """Values of a type have no plain form; the message is the name of the type."""


def annotation_of(config_class: type, item: Field[Any]) -> Any:
    """The annotation of a field of a dataclass, evaluated where the field is defined; its text if it cannot be."""
    owner = next(
        base
        for base in reversed(config_class.__mro__)
        if getattr(base, "__dataclass_fields__", {}).get(item.name) is item
    )
    module = sys.modules.get(owner.__module__)
    alone = types.SimpleNamespace(__annotations__={item.name: item.type})
    try:
        names = {**vars(module), **vars(owner)} if module else dict(vars(owner))
        return typing.get_type_hints(alone, globalns=names)[item.name]
    except Exception:  # noqa: BLE001 - annotations are code of the user, and may name what only a type checker imports
        return str(item.type)


def field_type(hint: Any, default: Any = None) -> tuple[FieldType, bool]:
    """The type of an annotation, and whether None is one of its values.

    Args:
        hint: the annotation.
        default: the default of the field.

    Raises:
        UnsupportedError: values of this type have no plain form.
    """
    if isinstance(hint, dataclasses.InitVar):
        hint = hint.type
    hint = getattr(hint, "__supertype__", hint)  # of a NewType
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    container = hint if origin is None else origin
    if hint in _SCALARS:
        return _SCALARS[hint](), False
    if container in (types.UnionType, typing.Union):
        return _union(arguments, default)
    if container is Literal:
        return _literal(arguments)
    if container in _CONTAINERS:
        return _container(container, arguments, default), False
    if container is os.PathLike:
        return PathName(pathlib.Path), False
    if isinstance(hint, type) and (of_class := _of_class(hint)):
        return of_class, False
    if _is_plain(default):
        return FieldType(), False
    raise UnsupportedError(_name_of(hint))


def _of_class(cls: type) -> FieldType | None:
    if issubclass(cls, enum.Enum) and not issubclass(cls, enum.Flag):
        return Member(list(cls))
    if issubclass(cls, pathlib.PurePath):
        return PathName(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        hints = typing.get_type_hints(cls)
        items = [_item_type(hints.get(name, Any)) for name in cls._fields]
        return Several(lambda values: cls(*values), items, is_open=False)
    return None


def _union(arguments: Sequence[Any], default: Any) -> tuple[FieldType, bool]:
    or_none, members, unsupported = types.NoneType in arguments, [], []
    # Of str | Path, the type of the default.
    for argument in sorted(arguments, key=lambda kind: not (isinstance(kind, type) and isinstance(default, kind))):
        if argument is types.NoneType:
            continue
        try:
            member, member_or_none = field_type(argument, default)
        except UnsupportedError as error:
            unsupported.append(str(error))
            continue
        members.append(member)
        or_none = or_none or member_or_none
    if not members or (unsupported and default is not None and not _is_plain(default)):
        raise UnsupportedError(" | ".join(map(_name_of, arguments)))
    return (members[0] if len(members) == 1 else AnyOf(members)), or_none


def _literal(arguments: Sequence[Any]) -> tuple[FieldType, bool]:
    choices = [argument for argument in arguments if argument is not None]
    or_none = len(choices) < len(arguments)
    if choices and all(_is_plain(choice) for choice in choices):
        return OneOf(choices), or_none
    classes = {type(choice) for choice in choices}
    if len(classes) == 1 and _of_class(*classes):
        return Member(choices), or_none
    raise UnsupportedError(f"Literal[{', '.join(map(repr, arguments))}]")


def _container(container: Any, arguments: Sequence[Any], default: Any) -> FieldType:
    make = _CONTAINERS[container] or (type(default) if type(default) in _CONTAINERS else list)
    if container is tuple and arguments and arguments[-1] is not Ellipsis:
        return Several(make, [_item_type(argument) for argument in arguments], is_open=False)
    return Several(make, [_item_type(arguments[0] if arguments else Any)], is_open=True)


def _item_type(hint: Any) -> FieldType:
    item, or_none = field_type(hint)
    if not or_none:
        return item
    return AnyOf([Nothing(), *(item.members if isinstance(item, AnyOf) else [item])])


def _is_plain(value: Any) -> bool:
    try:
        FieldType().check(value)
    except UnfitError:
        return False
    return value is not None


def _name_of(hint: Any) -> str:
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__name__
    return str(hint).replace("typing.", "")
