"""The workload of user-defined training functions: which one, how another process finds it, and what can be varied.

    def train(config: Config, rank: RankInfo, emit: Emit) -> dict[str, Any]: ...

Its configuration is a dataclass, named by the annotation of its first parameter, or else a dict of plain values.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import operator
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmls_ray.config.field_types import evaluated
from dmls_ray.config.fields import FieldSpec, field_defaults, field_specs, remember_field_specs
from dmls_ray.config.identity import digest_of_changes
from dmls_ray.config.runtime import RUNTIME_FIELDS, RuntimeConfig, Schema, without_derived_fields
from dmls_ray.records.metrics import TRAINING_METRICS
from dmls_ray.records.stale import FIELD as CODE_FIELD
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.importing import import_function
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.user_function.config_keys import optional_keys, required_keys
from dmls_ray.workloads.user_function.sent import Sent, send

FLAG = "--train"
OF_LOOPS = "ray.train"
"""What a loop of Ray Train needs in each run, and takes half a second to import."""


@dataclass(frozen=True, kw_only=True)
class UserFunctionConfig(RuntimeConfig):
    """One configuration of a user-defined training function.

    Raises:
        ConfigError, ConflictError: as `RuntimeConfig`.
    """

    train: str
    """`module:function`, or the name alone of a function without a module."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the function, by name."""
    sent: Sent | None = field(default=None, compare=False, repr=False)
    """The function itself, if no other process can import it."""

    @classmethod
    def specs_to_check(cls) -> Mapping[str, FieldSpec]:
        return field_specs(RuntimeConfig)

    def canonical(self) -> dict[str, Any]:
        runtime = {name: getattr(self, name) for name in RUNTIME_FIELDS}
        return {"train": self.train, "world_size": runtime.pop("world_size"), **self.values, **runtime}

    def replace(self, **changes: Any) -> UserFunctionConfig:
        return UserFunctionConfig(**{**without_derived_fields(vars(self), changes), **changes})

    def for_function(self, config_class: type | None) -> Any:
        """The configuration as the function takes it: an object of its dataclass, or a dict.

        A field of `RUNTIME_FIELDS` that the dataclass has, too, is filled in; a dict has all of them.
        """
        given = {name: value for name, value in self.canonical().items() if name != "train"}
        if config_class is None:
            return given
        specs = field_specs(config_class)
        return config_class(**{name: spec.native(given[name]) for name, spec in specs.items() if name in given})


def find_function(train: str | Callable[..., Any]) -> tuple[str, Sent | None, type | None]:
    """Find a training function and check how it is called.

    Args:
        train: `module:function`, or the function.

    Returns:
        Its name, the form in which it is sent where no other process can import it, and its configuration's dataclass;
        None where that is a dict.

    Raises:
        ConfigError: it is no such function, or its annotation is neither a dataclass nor a dict.
        UnknownNameError, UserCodeError: as `import_function`.
    """
    function = import_function(train, flag=FLAG) if isinstance(train, str) else train
    name, importable = (train, True) if isinstance(train, str) else function_name(function)
    try:
        parameters = len(inspect.signature(function).parameters)
        inspect.signature(function).bind(*[None] * min(parameters, 3))
        if parameters == 2:
            raise TypeError("two are too few")
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{FLAG}={name} cannot be called as train(config, rank, emit) ({error}); give it these three parameters, "
            "or one or none, as a loop of Ray Train; a method needs an object of its class in the module: "
            "module:object.method."
        ) from error
    config_class = config_class_of(function, name)
    if importable:
        return name, None, config_class
    specs = None if config_class is None else field_specs(config_class)
    sent = send((function, config_class, specs), function, config_class, given=f"{FLAG}={name}")
    return name, sent, config_class


def load_function(config: UserFunctionConfig) -> tuple[Callable[..., Any], type | None]:
    """The function of a configuration and its dataclass, in whichever process this is.

    Raises:
        UnknownNameError, UserCodeError: as `import_function`.
    """
    if config.sent is not None:
        function, config_class, specs = config.sent.load()
        if config_class is not None:
            # Its annotations may name what only the module has that it comes from.
            remember_field_specs(config_class, specs)
        return function, config_class
    function = import_function(config.train, flag=FLAG)
    return function, config_class_of(function, config.train)


def takes_rank(function: Callable[..., Any]) -> bool:
    """Whether a function is called as `train(config, rank, emit)`; else it is a loop of Ray Train's."""
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        return False
    return True


def config_class_of(function: Callable[..., Any], name: str) -> type | None:
    """The dataclass that the function's first parameter is annotated with; None where it is a dict.

    Raises:
        ConfigError: the annotation is something else, or cannot be resolved.
    """
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.annotation is first.empty:
        return None
    try:
        hint = evaluated(first.annotation, getattr(_plain_function(function), "__globals__", {}))
    except (NameError, SyntaxError, TypeError, AttributeError) as error:
        raise ConfigError(f"{FLAG}={name}: the annotation of {first.name} cannot be resolved ({error}).") from error
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    kind = typing.get_origin(hint) or hint
    if hint is Any or (isinstance(kind, type) and issubclass(kind, Mapping)):
        return None
    raise ConfigError(f"{FLAG}={name}: {first.name} is annotated with {hint}; use a dataclass or a dict.")


def user_function_schema(train: str | Callable[..., Any], names: Iterable[str] = ()) -> Schema:
    """What can be varied of a training function: the fields of its dataclass, or those named, and `RUNTIME_FIELDS`.

    Args:
        train: `module:function`, or the function.
        names: the fields, where the configuration is a dict; those that the function reads in every call are added.

    Raises:
        ConfigError, UnknownNameError, UserCodeError: as `find_function`.
    """
    name, sent, config_class = find_function(train)
    defaults: dict[str, Any] = {}
    if config_class is None:
        function = import_function(train, flag=FLAG) if isinstance(train, str) else train
        names = [*names, *required_keys(function)]
        defaults = {key: value for key, value in optional_keys(function).items() if key not in names}
    return function_schema(name, config_class, names, defaults=defaults, sent=sent)


def function_schema(
    name: str,
    config_class: type | None,
    names: Iterable[str] = (),
    *,
    defaults: Mapping[str, Any] | None = None,
    sent: Sent | None = None,
) -> Schema:
    """The schema of a function that was found.

    Args:
        name: the recorded name of the function.
        config_class: the dataclass of its configuration; None for a dict.
        names: the fields of a dict.
        defaults: further ones, with their defaults.
        sent: the function itself, where no other process can import it.
    """
    specs = _specs(config_class, names, defaults or {})

    def build(**given: Any) -> UserFunctionConfig:
        values = {key: spec.default for key, spec in specs.items()} | given
        runtime = {key: values.pop(key) for key in RUNTIME_FIELDS}
        config = UserFunctionConfig(train=name, values=values, sent=sent, **runtime)
        # The dataclass may choose the device that its values need.
        device = getattr(config.for_function(config_class), "device", "auto")
        if config.device == "auto" and device in ("cpu", "cuda"):
            return config.replace(device=device)
        return config

    return Schema(
        title=f"the configuration of {name}",
        specs=specs,
        build=build,
        # Of all values of the function, whose defaults may change, and of `RUNTIME_FIELDS` without defaults.
        hash_of=lambda values: digest_of_changes(values, field_defaults(RuntimeConfig)),
        fixed={"train": name},
    )


def _specs(config_class: type | None, names: Iterable[str], defaults: Mapping[str, Any]) -> dict[str, FieldSpec]:
    """World size first, then the fields of the function, then the rest of `RUNTIME_FIELDS`."""
    runtime = {name: field_specs(RuntimeConfig)[name] for name in RUNTIME_FIELDS}
    if config_class is None:
        custom = {name: FieldSpec(name, is_required=True) for name in names if name not in runtime}
        custom |= {name: FieldSpec(name, default=value) for name, value in defaults.items() if name not in runtime}
    else:
        custom = dict(field_specs(config_class))
        for name in custom.keys() & runtime.keys():
            default = custom.pop(name).default
            runtime[name] = dataclasses.replace(runtime[name], default=runtime[name].check(default))
    if reserved := custom.keys() & {"train", CODE_FIELD}:
        raise ConfigError(f"{reserved.pop()} is a column of every table; give that field another name.")
    return {"world_size": runtime.pop("world_size"), **custom, **runtime}


def _plain_function(function: Any) -> Any:
    """The function that a partial, a method, a decorated function or an object with __call__ calls."""
    if isinstance(function, functools.partial):
        return _plain_function(function.func)
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not inspect.isfunction(function) and inspect.isfunction(type(function).__call__):
        return _plain_function(type(function).__call__)
    return function


def function_name(function: Callable[..., Any], *, flag: str = FLAG) -> tuple[str, bool]:
    """`module:function`, or the name of a function without a module; and whether another process can import it.

    Args:
        function: a function, a class, or another object that can be called.
        flag: the flag or field to name in an error.

    Raises:
        ConfigError: it is of a script that would sweep itself when a rank imports it.
    """
    module = getattr(_plain_function(function), "__module__", None)
    name = _name_in_module(module, function) if module else ""
    if not name:
        return getattr(function, "__qualname__", type(function).__name__), False
    if module == "__main__":
        module = _module_of_script(f"{flag}={name}")
    return (f"{module}:{name}", True) if module else (name, False)


def _module_of_script(given: str) -> str:
    """The name by which ranks import the script that runs; empty in a notebook.

    Raises:
        ConfigError: the script sweeps when it is imported.
    """
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name
    script = Path(getattr(main, "__file__", None) or "")
    if not script.is_file() or not script.stem.isidentifier():
        return ""
    if "__name__" not in script.read_text(encoding="utf-8", errors="replace"):
        raise ConfigError(
            f"{given}: each rank imports {script.name}, and would sweep itself; put the call of sweep() under "
            "if __name__ == '__main__'."
        )
    return script.stem


def _name_in_module(module: str, function: Callable[..., Any]) -> str:
    """How a module names a function, `Class.function` for one of a class; empty if it does not."""
    imported = importlib.import_module(module)
    qualified: str | None = getattr(function, "__qualname__", None)
    if qualified is None:  # a partial, or an object that can be called
        return next((name for name, value in vars(imported).items() if value is function), "")
    try:
        # Each access makes another object of a class method; these are equal.
        return qualified if operator.attrgetter(qualified)(imported) == function else ""
    except AttributeError:
        return ""


class UserFunctionWorkload(Workload):
    """One user-defined training function; each function is a workload.

    Args:
        train: `module:function`, or the function.
        names: the fields that can be varied, where the function takes a dict.
    """

    config = UserFunctionConfig
    entrypoint = "dmls_ray.workloads.user_function.rank_run:run_user_function"
    metrics = TRAINING_METRICS
    throughput = ("images_per_s", "samples_per_s", "tokens_per_s")

    def __init__(self, train: str | Callable[..., Any], names: Iterable[str] = ()) -> None:
        self.train = train
        self.names = tuple(names)
        self.name = train if isinstance(train, str) else function_name(train)[0]

    def schema(self) -> Schema:
        """The fields of the function's dataclass, or those named, and `RUNTIME_FIELDS`.

        Raises:
            ConfigError, UnknownNameError, UserCodeError: as `find_function`.
        """
        return user_function_schema(self.train, self.names)

    def describe_sweep(self, axes: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if "#" in self.name:
            return None
        named = {name: given for name, given in axes.items() if name in self.names and name not in RUNTIME_FIELDS}
        return {"train": self.name, "axes": {name: axes[name] for name in axes if name not in named}, "set": named}

    def modules(self, config: UserFunctionConfig) -> Sequence[str]:
        return (config.train.partition(":")[0],) if config.sent is None else config.sent.modules

    def libraries(self, config: UserFunctionConfig) -> str:
        return "" if takes_rank(load_function(config)[0]) else OF_LOOPS

    def functions(self, config: UserFunctionConfig) -> Mapping[str, str]:
        return {} if config.sent is None else {config.train: config.sent.digest}
