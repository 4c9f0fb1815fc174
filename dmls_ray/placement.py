"""Where a run goes and who starts it: what every configuration has, that of the built-in trial and of a function of
one's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from dmls_ray.errors import ConfigError, ConflictError

BackendName = Literal["auto", "nccl", "gloo", "mpi"]
LauncherName = Literal["ray", "inline", "spawn", "torchrun", "mpirun"]
DeviceName = Literal["auto", "cpu", "cuda"]

PLACE = ("world_size", "backend", "launcher", "device", "threads_per_rank", "seed")
"""The fields that every configuration has."""


class Placed:
    """A configuration, as far as the machines that run it are concerned."""

    world_size: int
    backend: BackendName
    launcher: LauncherName
    device: DeviceName
    threads_per_rank: int
    seed: int

    GPU_ONLY: ClassVar[Mapping[str, tuple[str, str]]] = {"backend": ("nccl", "Use backend gloo")}
    """Field -> a value of it that CPUs do not have, and the way out."""

    def check_place(self) -> None:
        """Check the fields of `PLACE`.

        Raises:
            ConfigError: one is out of range.
            ConflictError: they do not go together.
        """
        require(self.world_size >= 1, "world_size", self.world_size, "give 1 or more")
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

    def device_for(self, gpus: int) -> str:
        """`cpu` or `cuda`: what device=auto is where there are so many GPUs."""
        return self.device if self.device != "auto" else "cuda" if gpus else "cpu"

    def backend_for(self, gpus: int) -> str:
        """`nccl` or `gloo`: what backend=auto is where there are so many GPUs."""
        return self.backend if self.backend != "auto" else "nccl" if self.device_for(gpus) == "cuda" else "gloo"

    def objection_on(self, device: str) -> str:
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
