"""What a configuration class says of its fields: type, choices, default and help, and whether a value is right for one.

A configuration class is a dataclass with a docstring under every field. Types are int, float, str, bool, a Literal of
one of these, or one of these or None.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import textwrap
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from dmls_ray.errors import ConfigError


@dataclass(frozen=True)
class FieldSpec:
    """What the command line and the tables need to know of a field."""

    name: str
    help: str
    default: Any
    choices: tuple[Any, ...]
    """The values it may have; empty where any of its type will do."""
    type: str
    """`int`, `float`, `str` or `bool`."""
    parse: Callable[[str], Any] = field(repr=False)


@functools.cache
def field_specs(config_class: type) -> dict[str, FieldSpec]:
    """Every field of a configuration class with its help, default and choices, in the order of the class."""
    docs = _field_docs(config_class)
    defaults = field_defaults(config_class)
    specs = {}
    for name in defaults:
        kind, choices, optional = _shape(config_class, name)
        specs[name] = FieldSpec(
            name=name,
            help=docs[name],
            default=defaults[name],
            choices=choices,
            type=kind.__name__,
            parse=functools.partial(_parse, config_class, name, kind, optional),
        )
    return specs


def field_defaults(config_class: type) -> dict[str, Any]:
    """Each field's default, by name."""
    return {spec.name: None if spec.default is MISSING else spec.default for spec in fields(config_class)}


def checked(config_class: type, name: str, value: Any) -> Any:
    """The value as its field has it.

    Raises:
        ConfigError: the value is of the wrong type or not among the choices.
    """
    kind, choices, optional = _shape(config_class, name)
    if value is None and optional:
        return None
    # An int is a good float, numpy scalars are good numbers, and a bool is neither.
    if not isinstance(value, bool):
        if kind is float and hasattr(value, "__float__") and not isinstance(value, str):
            value = float(value)
        elif kind is int and hasattr(value, "__index__"):
            value = value.__index__()
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise ConfigError(f"{name}={value!r} is not {_TYPE_NAMES[kind]}; give {_TYPE_NAMES[kind]}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name}={value} is not finite; give a number.")
    if choices and value not in choices:
        raise ConfigError(f"{name}={value} is unknown; choose from {', '.join(map(str, choices))}.")
    return value


@functools.cache
def _shape(config_class: type, name: str) -> tuple[type, tuple[Any, ...], bool]:
    """A field's type, its choices (empty for a free value) and whether None is allowed."""
    hint = typing.get_type_hints(config_class)[name]
    optional = isinstance(hint, types.UnionType)
    if optional:
        (hint,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        return type(choices[0]), choices, optional
    return hint, (), optional


_TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def _parse(config_class: type, name: str, kind: type, optional: bool, text: str) -> Any:
    """One value of a field from the command line.

    Raises:
        ConfigError: the text is no value of this field.
    """
    if optional and text.lower() == "none":
        return None
    if kind is bool:
        if text.lower() not in _BOOLS:
            raise ConfigError(f"{name}={text} is unknown; choose from true, false.")
        return _BOOLS[text.lower()]
    try:
        return checked(config_class, name, kind(text))
    except ValueError as error:
        raise ConfigError(f"{name}={text} is not {_TYPE_NAMES[kind]}; give {_TYPE_NAMES[kind]}.") from error


def _field_docs(config_class: type) -> dict[str, str]:
    """The docstring under each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(config_class))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for node, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(node.target, ast.Name)
            docs[node.target.id] = inspect.cleandoc(str(after.value.value))
    return docs
