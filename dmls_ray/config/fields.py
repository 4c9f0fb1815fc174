"""`FieldSpec` and `Setting`: what a configuration class says about each field, and the check of a value.

A configuration class is a dataclass. A field's annotation is its type with bounds, the docstring under it its help:

    label_smoothing: Annotated[float, Meta(ge=0, lt=1)] = setting(0.0, group="regularization")
    \"\"\"Label smoothing: share of the target that is spread over all classes.\"\"\"
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import json
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, inspect

from dmls_ray.config.field_types import (
    LISTS,
    annotation_of,
    enumerations_in,
    field_docs,
    plain_value,
    supported_hint,
    with_members,
)
from dmls_ray.config.value_texts import as_flag_value, guess_value
from dmls_ray.util.errors import ConfigError

# A search sends the types of its fields to processes of Ray, and msgspec does not pickle their bounds.
copyreg.pickle(Meta, lambda meta: (functools.partial(Meta, **dict(meta.__rich_repr__())), ()))

Count = Annotated[int, Meta(ge=1)]
WholeNumber = Annotated[int, Meta(ge=0)]
PositiveNumber = Annotated[float, Meta(gt=0)]
NonNegativeNumber = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Name = Annotated[str, Meta(pattern=r"\S")]

GROUPS = (
    "data", "ranks", "optimization", "launching", "computation", "regularization", "loss", "augmentation",
    "early stopping", "target", "loading",
    "script", "runs", "search", "repeats", "stopping", "results", "cluster", "limits", "artifacts", "display",
    "", "run",
)  # fmt: skip
"""Groups of fields, in the order of columns, labels and flags; the empty one is that of the user's code."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Metadata of a field: its group, its unit and the conditions under which it has an effect."""

    group: str = ""
    """Its group in `GROUPS`. Within a group, fields have the order of their declarations."""
    reads: Callable[[str], float] | None = None
    """Reads a number from a text as people type it: `20m`, say. Its ValueError names the way out."""
    expects: str = ""
    """What its text is, in words, where the type has a pattern."""
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


def setting(default: Any, **metadata: Any) -> Any:
    """A dataclass field with this default and the metadata of `Setting`."""
    return field(default=default, metadata={"setting": Setting(**metadata)})


_TYPE_NAMES: dict[type, str] = {
    inspect.IntType: "int", inspect.FloatType: "float", inspect.StrType: "str", inspect.BoolType: "bool",
}  # fmt: skip


@dataclass(frozen=True)
class FieldSpec:
    """Everything that the command line and the tables need to know about a field.

    Its values are plain ones. msgspec makes of them what the annotation names: a list, a path, a member of an
    enumeration.
    """

    name: str
    help: str = ""
    default: Any = None
    hint: Any = Any
    """The annotation; Any: any plain value."""
    setting: Setting = Setting()
    is_required: bool = False
    """Whether it has no default."""

    @cached_property
    def members(self) -> tuple[inspect.Type, ...]:
        """The types of a union, or the only one, without that of None."""
        described = inspect.type_info(self.hint)
        union = described.types if isinstance(described, inspect.UnionType) else (described,)
        return tuple(member for member in union if not isinstance(member, inspect.NoneType))

    @property
    def has_lists(self) -> bool:
        """Whether one value may have several parts."""
        return any(isinstance(member, LISTS) for member in self.members)

    @cached_property
    def enumerations(self) -> tuple[type[enum.Enum], ...]:
        """The enumerations whose members it takes, also as parts of a list."""
        return enumerations_in(inspect.type_info(self.hint))

    @cached_property
    def type(self) -> str:
        """`int`, `float`, `str` or `bool`; `value` for others."""
        if self.choices:
            names = {type(choice).__name__ for choice in self.choices}
        else:
            names = {_TYPE_NAMES.get(type(member), "value") for member in self.members}
        return names.pop() if len(names) == 1 else "value"

    @cached_property
    def choices(self) -> tuple[Any, ...]:
        """The allowed values; empty if values besides those of a Literal or an enumeration are allowed."""
        return self._listed if len(self.members) == 1 else ()

    @cached_property
    def _listed(self) -> tuple[Any, ...]:
        """The values of a Literal in its order, or the names of an enumeration."""
        listed: list[Any] = []
        for member in self.members:
            if isinstance(member, inspect.EnumType):
                listed += [item.name for item in member.cls]
        for hint in (self.hint, *get_args(self.hint)):
            if get_origin(hint) is Literal:
                listed += get_args(hint)
        return tuple(value for value in listed if value is not None)

    def parse(self, text: str) -> Any:
        """The value of a flag's text.

        Raises:
            ConfigError: the text is no value of this field.
        """
        given: Any = text
        guessed: Any = guess_value(text)
        if text.startswith('"') or (self.has_lists and text.startswith("[")):
            try:
                given = guessed = json.loads(text)
            except ValueError as error:
                raise self._unfit(text, "expected values separated by commas, or JSON") from error
        elif self.has_lists and guessed is not None and (len(self.members) == 1 or "," in text):
            given = [part.strip() for part in text.split(",")]
            guessed = [guess_value(part) for part in given]
        try:
            # A text that looks like a number is one, where the field has both.
            return self.plain(self.convert(guessed, strict=True))
        except msgspec.ValidationError:
            return self.check(given)
        except ValueError as error:
            raise self._unfit(text, str(error)) from error

    def check(self, value: Any) -> Any:
        """The plain value of a value given in Python, or as a text.

        Raises:
            ConfigError: the value is of the wrong type, out of bounds or not among the choices.
        """
        return self.plain(self.native(value))

    def plain(self, value: Any) -> Any:
        """The plain form of a value as `native` returns it.

        Raises:
            ValueError: it has none.
        """
        return plain_value(value, self.enumerations)

    def native(self, value: Any) -> Any:
        """A value as the annotation of the field has it: a list, a path, a member of an enumeration.

        Raises:
            ConfigError: as `check`.
        """
        if value is None and self.default is None and not self.is_required:
            return None
        try:
            number = value
            if self.setting.reads is not None and isinstance(value, str):
                number = self.setting.reads(value)
            if self.type == "int" and isinstance(value, float) and value.is_integer():
                number = int(value)
            return self.convert(number)
        except ValueError as error:
            raise self._unfit(value, str(error)) from error

    def convert(self, value: Any, *, strict: bool = False) -> Any:
        """A value as the annotation of the field has it; `strict`: a text is no number.

        Raises:
            ValueError: the value is of another type, or out of bounds.
        """
        given = with_members(self.plain(value), self.enumerations)
        native = msgspec.convert(given, self.hint, strict=strict, dec_hook=lambda path, text: path(text))
        self.plain(native)  # refuses a text of a number that is not finite
        return native

    def _unfit(self, value: Any, message: str) -> ConfigError:
        given = f"{self.name}={as_flag_value(value)}"
        if self._listed and (self.choices or message.startswith("Invalid enum value")):
            expected = ", ".join(map(as_flag_value, self._listed))
            others = [_TYPE_NAMES[type(member)] for member in self.members if type(member) in _TYPE_NAMES]
            if others:
                expected += f", or give {' or '.join(others)}"
            return ConfigError(f"{given} is unknown; choose from {expected}.")
        expected = message.partition(", got ")[0].replace("`", "").replace("null", "none")
        if self.setting.expects and "matching regex" in message:
            expected = f"expected {self.setting.expects}"
        if isinstance(value, str) and "," in value and not self.has_lists:
            expected += f"; several values are separated by spaces: {value.replace(',', ' ')}"
        return ConfigError(f"{given}: {expected[:1].lower()}{expected[1:]}.")


def field_specs(config_class: type) -> dict[str, FieldSpec]:
    """Every field of a configuration class that can be varied, in the order of tables, labels and flags: by
    their groups, and then as declared. A field for whose values no plain value stands keeps its default.

    Raises:
        ConfigError: a default is no value of its field, or a field that cannot be varied has none.
    """
    if config_class in _known:
        return _known[config_class]
    docs = field_docs(config_class)
    specs = {}
    taken = [item for item in fields(config_class) if item.init]
    for item in sorted(taken, key=lambda item: GROUPS.index(_setting_of(item).group)):
        is_required = item.default is item.default_factory is MISSING
        default = None if item.default is MISSING else item.default
        if item.default_factory is not MISSING:
            default = item.default_factory()
        hint = supported_hint(annotation_of(config_class, item), default)
        if hint is None and is_required:
            raise ConfigError(
                f"{item.name} of {config_class.__name__} has a type that no flag or axis can set; give it a default, "
                "or use a number, a text, a Literal of names, or a field for each of its parts."
            )
        if hint is None:
            continue
        spec = FieldSpec(item.name, docs.get(item.name, ""), None, hint, _setting_of(item), is_required)
        if default is not None:
            try:
                spec = dataclasses.replace(spec, default=spec.check(default))
            except ConfigError as error:
                raise ConfigError(f"the default in {config_class.__name__}: {error}") from error
        specs[item.name] = spec
    _known[config_class] = specs
    return specs


_known: dict[type, dict[str, FieldSpec]] = {}


def remember_field_specs(config_class: type, specs: dict[str, FieldSpec]) -> None:
    """Let `field_specs` return these of a class that has come from another process."""
    _known[config_class] = specs


def _setting_of(item: Field[Any]) -> Setting:
    given = item.metadata.get("setting")
    return given if isinstance(given, Setting) else Setting()


def field_defaults(config_class: type) -> dict[str, Any]:
    """Each field's default, by name; None for a field without one."""
    return {name: spec.default for name, spec in field_specs(config_class).items()}


def set_checked(config: Any, specs: Collection[FieldSpec]) -> None:
    """Check each value of a new frozen configuration, and set it converted to the type of its field.

    Raises:
        ConfigError: a value has the wrong type, is out of bounds or is not among the choices.
    """
    for spec in specs:
        object.__setattr__(config, spec.name, spec.native(getattr(config, spec.name)))
