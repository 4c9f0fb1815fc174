"""What a sweep may vary: the fields of a configuration, and how one is made of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.util.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The fields of a kind of configuration, in the order in which tables and labels tell them."""

    title: str
    """What an error calls the configuration."""
    specs: Mapping[str, FieldSpec]
    make: Callable[..., RuntimeConfig]
    """Takes fields by name; raises ConfigError or ConflictError."""
    hash_of: Callable[[Mapping[str, Any]], str]
    """The hash of values that no configuration can be made of."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """What every configuration has besides, and no field says: the function it is of."""

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
        """The value as its field has it.

        Raises:
            ConfigError: there is no such field, or the value is not right for it.
        """
        return self.check_name(name).check(value)

    def check_name(self, name: str) -> FieldSpec:
        """The field of this name.

        Raises:
            ConfigError: there is none.
        """
        if name not in self.specs:
            raise ConfigError(f"{name} is no field of {self.title}; the fields are {', '.join(self.specs)}.")
        return self.specs[name]
