"""`FieldSpec` and `Setting`: what a configuration class says about each field, and the check of a value.

A configuration class is a dataclass; a docstring under a field is its help. `field_type` lists the types.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import operator
import textwrap
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from dmls_ray.config.annotations import UnsupportedError, annotation_of, field_type
from dmls_ray.config.field_types import FieldType, OneOf, UnfitError
from dmls_ray.config.value_texts import as_flag_value
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


_PLAIN = FieldType()


@dataclass(frozen=True)
class FieldSpec:
    """Everything that the command line and the tables need to know about a field. Its values are plain ones."""

    name: str
    help: str = ""
    default: Any = None
    kind: FieldType = _PLAIN
    or_none: bool = True
    """None is a value, too."""
    setting: Setting = Setting()
    """Bounds, unit and conditions."""

    @property
    def type(self) -> str:
        """`int`, `float`, `str`, `bool` or `tuple`; `value` for any plain value."""
        return self.kind.name

    @property
    def choices(self) -> tuple[Any, ...]:
        """The allowed values; empty if all of its type are allowed."""
        return self.kind.choices

    def parse(self, text: str) -> Any:
        """The value of a flag's text.

        Raises:
            ConfigError: the text is no value of this field.
        """
        if self.or_none and text.lower() == self.setting.none_word and text not in self.choices:
            return None
        if self.setting.reads is not None:
            return self.check(text)
        try:
            return self.kind.parse(text)
        except UnfitError as error:
            raise self._unfit(text, str(error)) from error

    def check(self, value: Any) -> Any:
        """The plain value of a value given in Python.

        Raises:
            ConfigError: the value is of the wrong type or not among the choices.
        """
        if self.or_none and (value is None or (isinstance(value, str) and value == self.setting.none_word != "none")):
            return None
        if self.setting.reads is not None and isinstance(value, str):
            try:
                value = self.setting.reads(value)
            except ValueError as error:
                raise ConfigError(f"{self.name}={value} is not {self.kind.singular}; {error}.") from error
        try:
            return self.kind.check(value)
        except UnfitError as error:
            raise self._unfit(str(value) if str(error) else repr(value), str(error)) from error

    def native(self, value: Any) -> Any:
        """A value as the annotation of the field has it: a list, a path, a member of an enumeration.

        Raises:
            ConfigError: as `check`.
        """
        return None if value is None else self.kind.native(self.check(value))

    def plain(self, value: Any) -> Any:
        """The plain value of one that `native` has returned."""
        return value if value is None or not self.kind.is_converted else self.kind.check(value)

    def _unfit(self, shown: str, reason: str) -> ConfigError:
        none = f", or {self.setting.none_word}" if self.or_none else ""
        shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
        return ConfigError(
            f"{self.name}={shown} {reason or f'is not {self.kind.singular}; give {self.kind.singular}{none}'}."
        )


_LONGEST_SHOWN = 100
"""Most characters of a wrong value in a message."""


def field_specs(config_class: type) -> dict[str, FieldSpec]:
    """Every field of a configuration class that can be varied, in the order of `ordered_fields`.

    Raises:
        ConfigError: a default is no value of its field, or cannot be made.
    """
    return _fields_of(config_class)[0]


def fixed_fields(config_class: type) -> dict[str, str]:
    """The fields that stay at their defaults, since no plain value stands for one of theirs -> the reason."""
    return _fields_of(config_class)[1]


def remember_field_specs(config_class: type, specs: dict[str, FieldSpec]) -> None:
    """Let `field_specs` return these of a class that has come from another process."""
    _known[config_class] = specs, {}


_known: dict[type, tuple[dict[str, FieldSpec], dict[str, str]]] = {}


def _fields_of(config_class: type) -> tuple[dict[str, FieldSpec], dict[str, str]]:
    if config_class not in _known:
        _known[config_class] = _read_fields(config_class)
    return _known[config_class]


def _read_fields(config_class: type) -> tuple[dict[str, FieldSpec], dict[str, str]]:
    docs: dict[str, str] = {}
    for base in reversed(config_class.__mro__):
        if dataclasses.is_dataclass(base):
            docs |= _field_docs(base)
    specs, fixed = {}, {}
    for item in _fields_of_init(config_class):
        given = item.metadata.get("setting")
        setting = given if isinstance(given, Setting) else Setting()
        default = _default_of(config_class, item)
        try:
            kind, or_none = field_type(annotation_of(config_class, item), default)
        except UnsupportedError as error:
            fixed[item.name] = (
                f"{item.name} of {config_class.__name__} is of type {error}, of which no flag or axis has values; use "
                "a number, a text, a Literal of names, or a field for each of its parts"
            )
            if item.default is item.default_factory is MISSING:
                raise ConfigError(f"{fixed[item.name]}, or give it a default.") from error
            continue
        kind = OneOf(setting.choices) if setting.choices else kind
        spec = FieldSpec(item.name, docs.get(item.name, ""), None, kind, or_none, setting)
        if default is not None:
            try:
                default = spec.check(default)
            except ConfigError as error:
                raise ConfigError(f"the default in {config_class.__name__}: {error}") from error
        specs[item.name] = dataclasses.replace(spec, default=default)
    return specs, fixed


def _fields_of_init(config_class: type) -> list[Field[Any]]:
    """The fields that the class takes when an object is made, also those of type InitVar."""
    ordered = ordered_fields(config_class)
    taken = inspect.signature(config_class).parameters
    every: dict[str, Field[Any]] = vars(config_class)["__dataclass_fields__"]
    others = [item for item in every.values() if item not in ordered and item.name in taken]
    return [*(item for item in ordered if item.init), *others]


def _default_of(config_class: type, item: Field[Any]) -> Any:
    """The default of a field; None without.

    Raises:
        ConfigError: the function that makes it fails.
    """
    if item.default_factory is MISSING:
        return None if item.default is MISSING else item.default
    try:
        return item.default_factory()
    except Exception as error:
        raise ConfigError(
            f"the default of {item.name} in {config_class.__name__} cannot be made ({type(error).__name__}: {error}); "
            "give it a plain default."
        ) from error


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
    return [item.name for item in _fields_of_init(config_class) if item.default is item.default_factory is MISSING]


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
        object.__setattr__(config, spec.name, spec.native(value))


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
