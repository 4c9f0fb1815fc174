"""`RuntimeConfig`, the fields of every configuration; and `Schema`, the fields that one sweep can vary.

The fields of every configuration select machines, launcher, backend, device and seed. A subclass adds the fields of its
workload. Types, bounds and conflicts are checked when a configuration is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta

from dmls_ray.config.fields import Count, FieldSpec, field_specs, set_checked, setting
from dmls_ray.config.identity import Identity
from dmls_ray.util.errors import ConfigError, ConflictError
from dmls_ray.util.text import did_you_mean

BackendName = Literal["auto", "nccl", "gloo", "mpi"]
LauncherName = Literal["ray", "inline", "spawn", "torchrun", "mpirun"]
"""`ray` is the worker group; each other one is a module of `dmls_ray/launchers`."""
DeviceName = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Conflict:
    """Values that are valid alone and do not go together."""

    when: Callable[[Any], bool]
    """Whether a configuration has the conflict."""
    message: str
    """What is wrong and the way out; `{name}` stands for the value of a field."""


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """One configuration of a workload, as far as the machines that run it are concerned.

    Raises:
        ConfigError: a value breaks a rule of its field.
        ConflictError: values that are valid alone do not go together.
    """

    world_size: Count = setting(1, group="ranks", unit="ranks")
    """Number of ranks (worker processes) that train together."""

    machines: Count | None = setting(None, group="ranks")
    """Number of machines that the ranks are spread over equally; without it, as few as possible. With
    ranks_per_machine, world_size is their product. Without a number of ranks, each machine has one."""

    ranks_per_machine: Count | None = setting(None, group="ranks")
    """Number of ranks on each machine; without it, world_size / machines, or 1 without a world_size, too. Alone,
    it is that of one machine."""

    backend: BackendName = setting("auto", group="launching", gpu_only=("nccl", "Use backend gloo"))
    """Communication library between ranks; auto is nccl on GPUs and gloo on CPUs. mpi needs mpirun."""

    launcher: LauncherName = setting("ray", group="launching")
    """Program that starts the ranks: ray is the worker group; inline, spawn (torch.multiprocessing), torchrun and
    mpirun start an interpreter per rank for each run."""

    device: DeviceName = setting("auto", group="computation")
    """Where ranks train; auto is cuda if the cluster has GPUs, else cpu."""

    threads_per_rank: Count = setting(1, group="computation", unit="threads")
    """CPU threads a rank computes with."""

    seed: Annotated[int, Meta(ge=0, lt=2**31)] = setting(0, group="run")
    """Seed of the first repeat; each further repeat has another seed."""

    CONFLICTS: ClassVar[Sequence[Conflict]] = (
        Conflict(
            lambda config: config.launcher != "ray" and config.machines not in (None, 1),
            "machines={machines} needs ranks that Ray places, but launcher={launcher} starts all ranks on one "
            "machine; use "
            "launcher ray, or machines 1.",
        ),
        Conflict(
            lambda config: config.world_size > 1 and config.launcher == "inline",
            "launcher={launcher} runs one process, and world_size={world_size} needs {world_size}; use world_size 1, "
            "or launcher ray, spawn, torchrun or mpirun.",
        ),
        Conflict(
            lambda config: config.backend == "mpi" and config.launcher != "mpirun",
            "backend=mpi needs ranks that mpirun starts, but launcher={launcher} does not use it; use launcher "
            "mpirun, or "
            "backend gloo.",
        ),
    )
    """Conflicts between the fields of this class; those of base classes are checked as well."""

    joins_group: ClassVar[bool] = True
    """Whether the launcher makes the default process group and checks the user's sources; without, it is left to what
    the ranks run."""

    DERIVED: ClassVar[frozenset[str]] = frozenset()
    """Fields that follow from others, left out of the canonical form and the hash."""

    def __post_init__(self) -> None:
        set_checked(self, self.specs_to_check().values())
        self.derive()
        self.check_conflicts()

    @classmethod
    def specs_to_check(cls) -> Mapping[str, FieldSpec]:
        """The fields whose types and bounds are checked."""
        return field_specs(cls)

    def derive(self) -> None:
        """Compute the fields that follow from others: two of world_size, machines, ranks_per_machine give the third.

        Raises:
            ConflictError: the values contradict each other.
        """
        machines, ranks = self.machines, self.ranks_per_machine
        if machines is not None and ranks is not None:
            # world_size=1 is its default, so it counts as not given.
            if self.world_size not in (1, machines * ranks):
                raise ConflictError(
                    f"world_size={self.world_size} is not machines={machines} x ranks_per_machine={ranks}; give two of "
                    "the three."
                )
            object.__setattr__(self, "world_size", machines * ranks)
        elif machines is not None:
            self._divide_world_size("machines", machines, "ranks_per_machine")
        elif ranks is not None:
            self._divide_world_size("ranks_per_machine", ranks, "machines")

    def _divide_world_size(self, name: str, divisor: int, quotient: str) -> None:
        if self.world_size % divisor:
            raise ConflictError(
                f"world_size={self.world_size} does not divide by {name}={divisor}; give a world_size that does, or "
                f"{quotient} in its place."
            )
        object.__setattr__(self, quotient, self.world_size // divisor)

    def check_conflicts(self) -> None:
        """
        Raises:
            ConflictError: values that are valid alone do not go together.
        """
        if self.device != "auto" and (reason := self.infeasible_reason(self.device)):
            raise ConflictError(reason)
        for base in reversed(type(self).__mro__):
            for conflict in vars(base).get("CONFLICTS", ()):
                if conflict.when(self):
                    raise ConflictError(conflict.message.format_map(vars(self)))

    def device_for(self, gpus: int) -> str:
        """`cpu` or `cuda`: the device on a cluster with this number of GPUs."""
        return self.device if self.device != "auto" else "cuda" if gpus else "cpu"

    def backend_for(self, gpus: int) -> str:
        """`nccl`, `gloo` or `mpi`: the backend on a cluster with this number of GPUs."""
        return self.backend if self.backend != "auto" else "nccl" if self.device_for(gpus) == "cuda" else "gloo"

    def infeasible_reason(self, device: str) -> str:
        """Why ranks on `cpu` or `cuda` cannot run this, and the way out; empty if they can."""
        for name, spec in field_specs(type(self)).items():
            value, way_out = spec.setting.gpu_only or (None, "")
            if way_out and device == "cpu" and getattr(self, name) == value:
                return f"{name}={value} needs GPUs, but this run would train on CPUs. {way_out}."
        return ""

    def canonical(self) -> dict[str, Any]:
        """All fields as plain values, without those in `DERIVED`."""
        specs = field_specs(type(self))
        return {name: spec.plain(getattr(self, name)) for name, spec in specs.items() if name not in self.DERIVED}

    def factors(self) -> dict[str, Any]:
        """All fields as plain values, with those that follow from others."""
        return {**self.canonical(), **{name: getattr(self, name) for name in sorted(self.DERIVED)}}

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{**without_derived_fields(self.canonical(), changes), **changes})


RUNTIME_FIELDS = tuple(item.name for item in fields(RuntimeConfig))
"""The fields that every configuration has."""

MACHINE_FIELDS = ("machines", "ranks_per_machine")
"""The fields that spread ranks over machines: world_size is their product."""


def without_derived_fields(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the derived one of world_size, machines, ranks_per_machine so that it is recomputed from the other two."""
    remaining = dict(values)
    if "ranks_per_machine" in changes and "world_size" not in changes:
        del remaining["world_size"]
    elif changes.keys() & {"world_size", "machines"}:
        del remaining["ranks_per_machine"]
    return remaining


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
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names of fields, as flags."""
    hint: str = ""
    """How a name becomes a field, for the error about one that is none."""

    def make(self, **values: Any) -> RuntimeConfig:
        """The configuration with these fields.

        Raises:
            ConfigError: a value is wrong, or lacks.
            ConflictError: values that are valid alone do not go together.
        """
        missing = [name for name, spec in self.specs.items() if spec.is_required and name not in values]
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
        if name not in self.specs:
            meant = did_you_mean(name, [*self.specs])
            hint = f" {self.hint}" if self.hint else ""
            fields = ", ".join(self.specs)
            raise ConfigError(f"{name} is no field of {self.title}; {meant}the fields are {fields}.{hint}")
        return self.specs[name]
