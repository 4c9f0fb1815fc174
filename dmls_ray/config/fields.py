"""`FieldSpec` and `Setting`: what a configuration class says about each field, and the check of a value.

A configuration class is a dataclass; a docstring under a field is its help. Types are int, float, str, bool, a
Literal of one of these, or one of these or None; a field of any other type takes plain values as they are.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import functools
import inspect
import math
import operator
import textwrap
import types
import typing
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal

from dmls_ray.util.errors import ConfigError, ConflictError


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Metadata of a field: its bounds, its unit and the conditions under which it has an effect."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    """Values of a text whose choices a registry defines; a Literal defines its choices itself."""
    or_none: bool = False
    """None means no limit, so the way out for a number names it."""
    none_word: str = "none"
    """Text of None: `auto`, say, where the program chooses a value then."""
    reads: Callable[[str], float] | None = None
    """Reads a number from a text as people type it: `20m`, say. Its ValueError names the way out."""
    not_empty: bool = False
    """The text contains more than blanks."""
    unit: str = ""
    """Unit of a number, for the axis of a figure."""
    family: str = ""
    """Purpose that several fields share: `regulariser`."""
    counts_with: tuple[str, tuple[Any, ...]] | None = None
    """Another field and the values of it with which this field has an effect; None: it always has."""
    gpu_only: tuple[Any, str] | None = None
    """A value that CPUs do not support, and the way out."""
    is_explored: bool = True
    """Advice may suggest values beyond those that a sweep has."""
    ddp_only: bool = False
    """The field configures the exchange of gradients, so it has no effect at world_size=1."""

    def range_error(self, value: Any) -> str:
        """The way out for a value out of bounds; empty for a value within them."""
        if value is None:
            return ""
        if self.not_empty and not value.strip():
            return "give a name"
        bounds = (
            ("{:.10g} or more", self.at_least, operator.ge),
            ("more than {:.10g}", self.above, operator.gt),
            ("at most {:.10g}", self.at_most, operator.le),
            ("less than {:.10g}", self.below, operator.lt),
        )
        given = [(text.format(bound), compare(value, bound)) for text, bound, compare in bounds if bound is not None]
        if all(holds for _, holds in given):
            return ""
        return f"give {' and '.join(text for text, _ in given)}" + (f", or {self.none_word}" if self.or_none else "")


def setting(default: Any, **metadata: Any) -> Any:
    """A dataclass field with this default and the metadata of `Setting`."""
    return field(default=default, metadata={"setting": Setting(**metadata)})


@dataclass(frozen=True)
class FieldSpec:
    """Everything that the command line and the tables need to know about a field."""

    name: str
    help: str = ""
    default: Any = None
    kind: type = object
    """`int`, `float`, `str` or `bool`; `tuple` for several values; `object` for any plain value."""
    choices: tuple[Any, ...] = ()
    """The allowed values; empty if all of its type are allowed."""
    or_none: bool = True
    """None is a value, too."""
    setting: Setting = Setting()
    """Bounds, unit and conditions."""

    @property
    def type(self) -> str:
        """`int`, `float`, `str`, `bool` or `tuple`; `value` for any plain value."""
        return "value" if self.kind is object else self.kind.__name__

    def parse(self, text: str) -> Any:
        """The value of a flag's text.

        Raises:
            ConfigError: the text is no value of this field.
        """
        if self.or_none and text.lower() == self.setting.none_word:
            return None
        if self.setting.reads is not None:
            return self.check(text)
        if self.kind is tuple:
            return self.check([_plain_of(part) for part in text.split(",")])
        if self.kind is object:
            return self.check(_plain_of(text))
        if self.kind is bool:
            if text.lower() not in _BOOLS:
                raise ConfigError(f"{self.name}={text} is unknown; choose from true, false.")
            return _BOOLS[text.lower()]
        try:
            value = self.kind(text)
        except ValueError as error:
            raise ConfigError(self._wrong_type(text)) from error
        return self.check(value)

    def _wrong_type(self, value: str) -> str:
        kind = _TYPE_NAMES[self.kind]
        none = f", or {self.setting.none_word}" if self.or_none else ""
        return f"{self.name}={value} is not {kind}; give {kind}{none}."

    def check(self, value: Any) -> Any:
        """The value, converted to the type of the field.

        Raises:
            ConfigError: the value is of the wrong type or not among the choices.
        """
        name, kind = self.name, self.kind
        if self.or_none and (value is None or (value == self.setting.none_word != "none")):
            return None
        if self.setting.reads is not None and isinstance(value, str):
            try:
                value = self.setting.reads(value)
            except ValueError as error:
                raise ConfigError(f"{name}={value} is not {_TYPE_NAMES[kind]}; {error}.") from error
        if kind is tuple and not isinstance(value, list | tuple):
            raise ConfigError(f"{name}={value!r} is no tuple; give one, or a list of several.")
        if kind in (object, tuple):
            return _checked_plain(name, value)

        # An int is a good float, numpy scalars are good numbers, and a bool is neither.
        if not isinstance(value, bool):
            if kind is float and hasattr(value, "__float__") and not isinstance(value, str):
                value = float(value)
            elif kind is int and hasattr(value, "__index__"):
                value = value.__index__()
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ConfigError(f"{name}={value} has more than 64 bits; give a smaller one.")
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise ConfigError(self._wrong_type(repr(value)))
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name}={value} is not finite; give a number.")
        if self.choices and value not in self.choices:
            raise ConfigError(f"{name}={value} is unknown; choose from {', '.join(map(str, self.choices))}.")
        return value


def field_specs(config_class: type) -> dict[str, FieldSpec]:
    """Every field of a configuration class with its help, default and choices, in the order of `ordered_fields`."""
    return _field_specs(config_class)


@functools.cache
def _field_specs(config_class: type) -> dict[str, FieldSpec]:
    docs: dict[str, str] = {}
    for base in reversed(config_class.__mro__):
        if dataclasses.is_dataclass(base):
            docs |= _field_docs(base)
    hints = typing.get_type_hints(config_class)
    specs = {}
    for item in ordered_fields(config_class):
        if item.init:
            factory, setting = item.default_factory, item.metadata.get("setting", Setting())
            default = item.default if item.default is not MISSING else None if factory is MISSING else factory()
            kind, choices, or_none = _shape(hints[item.name], setting)
            specs[item.name] = FieldSpec(item.name, docs.get(item.name, ""), default, kind, choices, or_none, setting)
    return specs


def _shape(hint: Any, setting: Setting) -> tuple[type, tuple[Any, ...], bool]:
    """The `kind`, `choices` and `or_none` of a field, from its annotation."""
    or_none = False
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        args = typing.get_args(hint)
        kinds = [arg for arg in args if arg is not type(None)]
        hint, or_none = kinds[0] if len(kinds) == 1 else object, len(kinds) < len(args)
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if len({type(choice) for choice in choices}) == 1:
            return type(choices[0]), choices, or_none
    if setting.choices:
        return str, setting.choices, or_none
    if (typing.get_origin(hint) or hint) in (tuple, list):
        return tuple, (), or_none
    return hint if hint in _TYPE_NAMES else object, (), or_none


def ordered_fields(config_class: type) -> list[Field[Any]]:
    """The fields of a dataclass in the order of tables, labels and flags.

    A class attribute FIELD_ORDER gives this order, since dataclasses put inherited fields first. Fields that it does
    not name follow.
    """
    by_name = {item.name: item for item in fields(config_class)}
    order = dict.fromkeys((*getattr(config_class, "FIELD_ORDER", ()), *by_name))
    return [by_name[name] for name in order]


def required_fields(config_class: type) -> list[str]:
    """The names of the fields without a default."""
    return [item.name for item in fields(config_class) if item.init and item.default is item.default_factory is MISSING]


def field_defaults(config_class: type) -> dict[str, Any]:
    """Each field's default, by name; None for a field without one."""
    return {name: spec.default for name, spec in field_specs(config_class).items()}


def set_checked(config: Any, specs: Collection[FieldSpec]) -> None:
    """Check each value of a new frozen configuration, and set it converted to the type of its field.

    Raises:
        ConfigError: a value has the wrong type, is not among the choices, or is out of bounds.
    """
    for spec in specs:
        value = spec.check(getattr(config, spec.name))
        if way_out := spec.setting.range_error(value):
            raise ConfigError(f"{spec.name}={value} is out of range; {way_out}.")
        object.__setattr__(config, spec.name, value)


def no_effect(spec: FieldSpec, values: Collection[Any], others: Collection[Any]) -> ConflictError:
    """The error that a field has values without effect.

    Args:
        spec: a field with `counts_with`.
        values: the values given.
        others: the values of the field that it depends on.
    """
    assert spec.setting.counts_with is not None
    condition, counts = spec.setting.counts_with
    return ConflictError(
        f"{spec.name}={', '.join(map(str, values))} has no effect with {condition}={', '.join(map(str, others))}; use "
        f"{condition} {' or '.join(counts)}, or {spec.name} {as_flag_value(spec.default)}."
    )


def as_flag_value(value: Any) -> str:
    """A value as it is typed after a flag."""
    return str(value).lower() if isinstance(value, bool | None) else str(value)


_TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def _plain_of(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _checked_plain(name: str, value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # numpy's scalars, PyTorch's of one element
        value = value.item()
    if isinstance(value, list | tuple):
        return tuple(_checked_plain(name, item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name}={value} is not finite; give a number.")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ConfigError(f"{name}={value} has more than 64 bits; give a smaller one, or a float.")
    if value is not None and (not isinstance(value, bool | int | float | str) or isinstance(value, enum.Enum)):
        raise ConfigError(f"{name}={value!r} is no plain value; give a number, a text, true, false or none.")
    return value


def _field_docs(config_class: type) -> dict[str, str]:
    """The docstring under each field; empty without the source."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(config_class))).body[0]
    except (OSError, TypeError):  # typed into an interpreter
        return {}
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for node, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(node.target, ast.Name)
            docs[node.target.id] = inspect.cleandoc(str(after.value.value))
    return docs
