"""`Schema`: the fields that a sweep can vary, and how a configuration is made from their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.util.errors import ConfigError, ConflictError
from dmls_ray.util.text import did_you_mean


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The fields of one kind of configuration, in the order of tables and labels."""

    title: str
    """Name of the configuration in errors."""
    specs: Mapping[str, FieldSpec]
    build: Callable[..., RuntimeConfig]
    """Takes fields by name; raises ConfigError, ConflictError, or whatever the class of a user raises."""
    hash_of: Callable[[Mapping[str, Any]], str]
    """The hash of values, also of values that conflict."""
    identity_of: Callable[[RuntimeConfig], Identity] = lambda config: Identity()
    """The user's code and data that a run of a configuration has."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Recorded values that are no fields: the workload or the function."""
    required: Sequence[str] = ()
    """Fields that need a value."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Fields that cannot be varied -> the reason and the way out."""

    def make(self, **values: Any) -> RuntimeConfig:
        """The configuration with these fields.

        Raises:
            ConfigError: a value is wrong, or lacks.
            ConflictError: values that are valid alone do not go together.
        """
        missing = [name for name in self.required if name not in values]
        if missing:
            raise ConfigError(f"{self.title} needs a value of {', '.join(missing)}; give one.")
        try:
            return self.build(**values)
        except ConfigError:
            raise
        except Exception as error:
            raise ConflictError(f"{self.title} refuses its values: {type(error).__name__}: {error}") from error

    @cached_property
    def counts_with(self) -> dict[str, tuple[str, tuple[Any, ...]]]:
        """Fields that have an effect only if another field has one of these values."""
        settings = {name: spec.setting.counts_with for name, spec in self.specs.items()}
        return {name: condition for name, condition in settings.items() if condition is not None}

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Each field's default, by name."""
        return {name: spec.default for name, spec in self.specs.items()}

    def check(self, name: str, value: Any) -> Any:
        """The value converted to the type of its field.

        Raises:
            ConfigError: there is no such field, or the value is invalid.
        """
        return self.check_name(name).check(value)

    def check_name(self, name: str) -> FieldSpec:
        """The field of this name.

        Raises:
            ConfigError: there is none.
        """
        if name in self.refused:
            raise ConfigError(f"{self.refused[name]}.")
        if name not in self.specs:
            meant = did_you_mean(name, [*self.specs])
            raise ConfigError(f"{name} is no field of {self.title}; {meant}the fields are {', '.join(self.specs)}.")
        return self.specs[name]
