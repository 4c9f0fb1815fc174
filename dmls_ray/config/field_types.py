"""What the source of a configuration class says about its fields: their types and their docstrings; and plain values.

A plain value, as hashes and records have it, is a number, a text, true, false, None, or a tuple of these.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
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

TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""Texts of a field that is true or false, besides 1 and 0."""


class UnsupportedError(Exception):
    """Values of a type have no plain form; the message is the name of the type."""


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
    """An annotation as msgspec supports it; Any: any plain value.

    Args:
        hint: the annotation.
        default: the default of the field.

    Raises:
        UnsupportedError: values of this type have no plain form.
    """
    if str in get_args(hint) and get_origin(hint) in (types.UnionType, typing.Union):
        # msgspec has no union with a path; of str | Path, the code gets a text.
        texts = [item for item in get_args(hint) if not (isinstance(item, type) and issubclass(item, os.PathLike))]
        hint = typing.Union[tuple(texts)]  # noqa: UP007 - their number is not known
    try:
        if _is_supported(inspect.type_info(hint)):
            return hint
    except TypeError:  # msgspec does not support it
        pass
    if hint is object or isinstance(default, str | int | float):
        return Any
    raise UnsupportedError(hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint))


def _is_supported(described: Any) -> bool:
    if isinstance(described, inspect.CustomType):
        return issubclass(described.cls, PurePath)
    if isinstance(described, inspect.EnumType):
        return not issubclass(described.cls, enum.Flag)
    parts = [*getattr(described, "types", ()), *getattr(described, "item_types", ())]
    if hasattr(described, "item_type"):
        parts.append(described.item_type)
    return isinstance(described, SCALARS) or (bool(parts) and all(map(_is_supported, parts)))


def field_docs(config_class: type) -> dict[str, str]:
    """The docstring under each field, also of base classes; empty without the source."""
    docs: dict[str, str] = {}
    for base in reversed(config_class.__mro__):
        if dataclasses.is_dataclass(base):
            docs |= _docs_in(base)
    return docs


def _docs_in(config_class: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(getsource(config_class))).body[0]
    except (OSError, TypeError):  # typed into an interpreter
        return {}
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for node, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(node.target, ast.Name)
            docs[node.target.id] = cleandoc(str(after.value.value))
    return docs
