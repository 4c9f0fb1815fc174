"""Where a run goes and who starts it: what every configuration has, that of the built-in trial and of a function of
one's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from dmls_ray.util.errors import ConfigError, ConflictError

BackendName = Literal["auto", "nccl", "gloo", "mpi"]
LauncherName = Literal["ray", "inline", "spawn", "torchrun", "mpirun"]
DeviceName = Literal["auto", "cpu", "cuda"]

RUNTIME_FIELDS = (
    "world_size", "machines", "ranks_per_machine", "backend", "launcher", "device", "threads_per_rank", "seed"
)  # fmt: skip
"""The fields that every configuration has."""

MACHINE_FIELDS = ("machines", "ranks_per_machine")
"""Those that say over how many machines the ranks go: world_size is their product."""


class RuntimeConfig:
    """A configuration, as far as the machines that run it are concerned."""

    world_size: int
    machines: int | None
    ranks_per_machine: int | None
    backend: BackendName
    launcher: LauncherName
    device: DeviceName
    threads_per_rank: int
    seed: int

    GPU_ONLY: ClassVar[Mapping[str, tuple[str, str]]] = {"backend": ("nccl", "Use backend gloo")}
    """Field -> a value of it that CPUs do not have, and the way out."""

    def check_place(self) -> None:
        """Check the fields of `RUNTIME_FIELDS`, and work out those of world_size, machines and ranks_per_machine that follow.

        Raises:
            ConfigError: one is out of range.
            ConflictError: they do not go together.
        """
        for name in ("world_size", *MACHINE_FIELDS):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "give 1 or more")
        self._settle_spread()
        require(self.threads_per_rank >= 1, "threads_per_rank", self.threads_per_rank, "give 1 or more")
        require(self.seed >= 0, "seed", self.seed, "give 0 or more")
        require(self.seed < 2**31, "seed", self.seed, "give less than 2147483648")
        if self.launcher == "inline" and self.world_size > 1:
            raise ConflictError(
                f"launcher=inline is one process and world_size={self.world_size} needs as many; use world_size 1, or "
                "launcher ray, spawn, torchrun or mpirun."
            )
        if self.backend == "mpi" and self.launcher != "mpirun":
            raise ConflictError(
                f"backend=mpi needs ranks that mpirun starts and launcher={self.launcher} does not; use launcher "
                "mpirun, or backend gloo."
            )

    def _settle_spread(self) -> None:
        machines, each = self.machines, self.ranks_per_machine
        if machines is None and each is None:
            return
        if machines is not None and each is not None:
            # A world_size of 1, its default, is one that nobody gave.
            if self.world_size not in (1, machines * each):
                raise ConflictError(
                    f"world_size={self.world_size} is not machines={machines} x ranks_per_machine={each}; give two of "
                    "the three."
                )
            object.__setattr__(self, "world_size", machines * each)
        else:
            name, given = ("machines", machines) if machines is not None else ("ranks_per_machine", each)
            other = "ranks_per_machine" if machines is not None else "machines"
            assert given is not None
            if self.world_size % given:
                raise ConflictError(
                    f"world_size={self.world_size} does not divide by {name}={given}; give a world_size that does, or "
                    f"{other} in its place."
                )
            object.__setattr__(self, other, self.world_size // given)
        if self.launcher != "ray" and self.machines != 1:
            raise ConflictError(
                f"machines={self.machines} needs ranks that Ray places and launcher={self.launcher} starts them on one "
                "machine; use launcher ray, or machines 1."
            )

    def device_for(self, gpus: int) -> str:
        """`cpu` or `cuda`: what device=auto is where there are so many GPUs."""
        return self.device if self.device != "auto" else "cuda" if gpus else "cpu"

    def backend_for(self, gpus: int) -> str:
        """`nccl` or `gloo`: what backend=auto is where there are so many GPUs."""
        return self.backend if self.backend != "auto" else "nccl" if self.device_for(gpus) == "cuda" else "gloo"

    def infeasible_reason(self, device: str) -> str:
        """Why ranks on `cpu` or `cuda` cannot do this, and the way out; empty where they can."""
        for name, (value, way_out) in self.GPU_ONLY.items():
            if device == "cpu" and getattr(self, name) == value:
                return f"{name}={value} needs GPUs, and this would train on CPUs. {way_out}."
        return ""

    def canonical(self) -> dict[str, Any]:
        """All fields as plain values, without those that follow from others."""
        raise NotImplementedError

    def factors(self) -> dict[str, Any]:
        """All fields as plain values, with those that follow from others."""
        return self.canonical()

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        raise NotImplementedError

    @property
    def hash(self) -> str:
        """12 hex digits that name this trial: equal configurations have equal hashes."""
        raise NotImplementedError


def without_derived_fields(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a configuration that is to be changed, without what follows anew from the changes: of world_size,
    machines and ranks_per_machine two say the third.
    """
    kept = dict(values)
    if "ranks_per_machine" in changes and "world_size" not in changes:
        del kept["world_size"]
    elif changes.keys() & {"world_size", "machines"}:
        del kept["ranks_per_machine"]
    return kept


def digest(values: Mapping[str, Any]) -> str:
    """12 hex digits that follow from plain values, whatever their order."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def require(holds: bool, name: str, value: Any, way_out: str) -> None:
    """
    Raises:
        ConfigError: it does not hold.
    """
    if not holds:
        raise ConfigError(f"{name}={value} is out of range; {way_out}.")
