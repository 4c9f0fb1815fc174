"""What the source of a configuration class says about its fields: their types and their docstrings; and plain values.

A plain value, as hashes and records have it, is a number, a text, true, false, None, or a tuple of these.
"""

from __future__ import annotations

import ast
import enum
import itertools
import math
import os
import sys
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence, Set
from dataclasses import Field
from inspect import cleandoc, getsource
from pathlib import PurePath
from typing import Any, get_args, get_origin

from msgspec import inspect

SCALARS = (
    inspect.AnyType, inspect.NoneType, inspect.BoolType, inspect.IntType, inspect.FloatType, inspect.StrType,
    inspect.LiteralType,
)  # fmt: skip
LISTS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType, inspect.TupleType)


def plain_value(value: Any, enumerations: tuple[type[enum.Enum], ...] = ()) -> Any:
    """The plain form of a value.

    Args:
        value: the value.
        enumerations: those whose members have a plain form, their names.

    Raises:
        ValueError: it has none.
    """
    if isinstance(value, enumerations):
        return value.name
    if hasattr(value, "tolist"):  # of NumPy, or a tensor
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("expected a finite number")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("expected a number of at most 64 bits")
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Set):
        return tuple(sorted((plain_value(part, enumerations) for part in value), key=repr))
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return tuple(plain_value(part, enumerations) for part in value)
    raise ValueError("expected a number, a text, true, false or none")


def with_members(plain: Any, enumerations: tuple[type[enum.Enum], ...]) -> Any:
    """A plain value with the members of enumerations in place of their names."""
    if isinstance(plain, tuple):
        return tuple(with_members(part, enumerations) for part in plain)
    for enumeration in enumerations:
        if plain in enumeration.__members__:
            return enumeration[plain]
    return plain


def annotation_of(config_class: type, item: Field[Any]) -> Any:
    """The annotation of a field of a dataclass, evaluated where the field is defined; its text if it cannot be."""
    bases = reversed(config_class.__mro__)
    owner = next(base for base in bases if getattr(base, "__dataclass_fields__", {}).get(item.name) is item)
    names = {**vars(sys.modules.get(owner.__module__, types)), **vars(owner)}
    try:
        return evaluated(item.type, names)
    except Exception:  # noqa: BLE001 - annotations are code of the user, and may name what only a type checker imports
        return str(item.type)


def evaluated(annotation: Any, names: Mapping[str, Any]) -> Any:
    """One annotation with its names looked up; those of other parameters may be imported for a type checker only."""
    alone = types.SimpleNamespace(__annotations__={"alone": annotation})
    return typing.get_type_hints(alone, globalns=dict(names), include_extras=True)["alone"]


def supported_hint(hint: Any, default: Any = None) -> Any:
    """An annotation as msgspec supports it; Any: any plain value; None: values of this type have no plain form.

    Args:
        hint: the annotation.
        default: the default of the field.
    """
    if str in get_args(hint) and get_origin(hint) in (types.UnionType, typing.Union):
        # msgspec has no union of a text and a path; of str | Path, the code gets a text.
        texts = [part for part in get_args(hint) if not (isinstance(part, type) and issubclass(part, os.PathLike))]
        hint = typing.Union[tuple(texts)]  # noqa: UP007 - their number is not known
    try:
        if _is_supported(inspect.type_info(hint)):
            return hint
    except TypeError:  # msgspec does not support it
        pass
    return Any if hint is object or isinstance(default, str | int | float) else None


def _is_supported(described: Any) -> bool:
    if isinstance(described, inspect.CustomType):
        return issubclass(described.cls, PurePath)
    if isinstance(described, inspect.EnumType):
        return not issubclass(described.cls, enum.Flag)
    parts = _parts(described)
    return isinstance(described, SCALARS) or (bool(parts) and all(map(_is_supported, parts)))


def enumerations_in(described: inspect.Type) -> tuple[type[enum.Enum], ...]:
    """The enumerations that a type consists of, also as parts of lists and unions."""
    if isinstance(described, inspect.EnumType):
        return (described.cls,)
    return tuple(itertools.chain.from_iterable(map(enumerations_in, _parts(described))))


def _parts(described: Any) -> list[inspect.Type]:
    """The members of a union, or the types of a list's items."""
    parts = [*getattr(described, "types", ()), *getattr(described, "item_types", ())]
    if hasattr(described, "item_type"):
        parts.append(described.item_type)
    return parts


def field_docs(config_class: type) -> dict[str, str]:
    """The docstring under each field, also of base classes; empty without the source."""
    docs: dict[str, str] = {}
    for base in reversed(config_class.__mro__):
        try:
            [definition] = ast.parse(textwrap.dedent(getsource(base))).body
        except (OSError, TypeError):  # built in, or typed into an interpreter
            continue
        body = definition.body  # type: ignore[attr-defined]
        for node, after in itertools.pairwise(body):
            match node, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = cleandoc(text)
    return docs
