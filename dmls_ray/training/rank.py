"""`RankInfo`, which the launcher gives to each rank, the type of a training function, and what its process imports."""

from __future__ import annotations

import contextlib
import gc
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.run_events import Progress, RankEvent, RankResult
from dmls_ray.training.run_clock import RunClock
from dmls_ray.util.importing import import_libraries


@dataclass(frozen=True, kw_only=True)
class ArtifactOptions:
    """Files that a run leaves next to its record."""

    folder: str
    """Folder of this run; on several machines, on a disk that they share."""
    checkpoints: bool = False
    """Save after each epoch, and resume from there if the run is interrupted."""
    weights: bool = False
    """Save the final weights."""
    trace: bool = False
    """Write a trace of a few further steps of each rank."""


@dataclass
class WorkCounter:
    """What the code of a rank says that it has processed since its last optimizer step."""

    samples: float = 0.0
    tokens: float = 0.0

    def take(self) -> tuple[float, float]:
        """The samples and the tokens of the step that ends; the next one begins without any."""
        taken = self.samples, self.tokens
        self.samples = 0.0
        self.tokens = 0.0
        return taken


@dataclass(frozen=True, kw_only=True)
class RankInfo:
    """One worker process of a run.

    The launcher owns the process group: at world size above 1 the default group exists when the training function is
    called, and is destroyed after it.
    """

    rank: int = 0
    """Number of this rank, from 0 to world_size - 1."""
    world_size: int = 1
    """Number of ranks in this run."""
    device: str = "cpu"
    """Where this rank trains: `cpu` or `cuda:N`."""
    backend: str | None = None
    """Backend of the default process group; None at world size 1."""
    name: str = ""
    """Name of this attempt at a run, which no other at its store has."""
    machine: str = "localhost"
    """Name of the machine this rank is on."""
    machines: tuple[str, ...] = ()
    """The machine of each rank of the run; empty: all are on this one."""
    store_address: tuple[str, int] | None = None
    """Host and port of the key-value store where the ranks met; None at world size 1, or without a server."""
    artifacts: ArtifactOptions | None = None
    """Files to leave next to the record; None: none."""
    identity: Identity = field(default_factory=Identity)
    """The code and the data of the run, as the driver found them."""
    prunable: bool = False
    """Whether the run may be stopped after an epoch (a search). Then every rank emits its epochs and waits for the
    answer."""
    clock: RunClock = field(default_factory=RunClock, repr=False, compare=False)
    """The time since this process received the run: `assigned_at`, by time.perf_counter, and `total_s`."""
    work: WorkCounter = field(default_factory=WorkCounter, repr=False, compare=False)
    """The samples and tokens that `count` was given since the last optimizer step."""

    def count(self, *, samples: float = 0, tokens: float = 0) -> None:
        """Say how many samples or tokens this rank has processed since its last optimizer step.

        Rates are in this unit then, and no longer those of the samples that loaders and models had.
        """
        self.work.samples += samples
        self.work.tokens += tokens

    @property
    def is_traced(self) -> bool:
        """Whether a trace of the run is asked for."""
        return self.artifacts is not None and self.artifacts.trace

    @property
    def local_rank(self) -> int:
        """Number of this rank on its machine, from 0; on a GPU the number of the GPU, which libraries take it for."""
        if self.device.startswith("cuda:"):
            return int(self.device.removeprefix("cuda:"))
        return self.machines[: self.rank].count(self.machine) if self.machines else self.rank

    @property
    def local_world_size(self) -> int:
        """Number of ranks of the run on this machine."""
        return self.machines.count(self.machine) if self.machines else self.world_size

    @property
    def machine_rank(self) -> int:
        """Number of this machine in the run, from 0."""
        return list(dict.fromkeys(self.machines)).index(self.machine) if self.machines else 0


def rank_of_run(
    number: int,
    config: RuntimeConfig,
    *,
    device: str,
    gpu: str,
    backend: str,
    store_address: tuple[str, int] | None,
    **facts: Any,
) -> RankInfo:
    """The rank of this number in a run, under every launcher.

    Args:
        number: of the rank.
        config: the configuration of the run.
        device: `cpu` or `cuda`.
        gpu: the device of the rank where it trains on a GPU, `cuda:N`.
        backend: that of several ranks.
        store_address: where several ranks meet.
        facts: the other fields.
    """
    if config.world_size > 1:
        facts |= {"backend": backend, "store_address": store_address}
    return RankInfo(rank=number, world_size=config.world_size, device=gpu if device == "cuda" else "cpu", **facts)


Emit = Callable[[RankEvent], bool | None]
"""Takes one event of a run.

`EpochEnded` (rank 0's) becomes a row of the record; `Progress` only shows that the rank is alive. Returns at once,
except for an epoch of a prunable run: False ends the run there."""

TrainFunction = Callable[[Any, RankInfo, Emit], RankResult]
"""`train(config, rank, emit)` returns what this rank measured."""

PROGRESS_INTERVAL_S = 1.0
"""Minimum time between two signs of progress that are passed on."""


def limit_progress(emit: Emit) -> Emit:
    """An `emit` that passes on every epoch, and `Progress` at most every `PROGRESS_INTERVAL_S`."""
    last = time.monotonic()

    def limited(event: RankEvent) -> bool | None:
        nonlocal last
        if isinstance(event, Progress) and time.monotonic() - last < PROGRESS_INTERVAL_S:
            return None
        last = time.monotonic()
        return emit(event)

    return limited


def preload(entrypoint: str = "dmls_ray.training.child_run", libraries: str = "") -> None:
    """Import what runs with an entry point need.

    Imported objects are kept from the garbage collector. Without collections the imports take three quarters of the
    time, and the collection at the start of each run examines only the objects of runs.

    Args:
        entrypoint: `module:function`; by default, what all runs need.
        libraries: those of the user's that runs need, too, as `import_libraries` takes them; empty without any.
    """
    gc.disable()
    import torch

    # Not by `import_function`, which would take a broken installation for an error in the user's code.
    importlib.import_module(entrypoint.partition(":")[0])
    importlib.import_module("dmls_ray.training.child_run")
    # They were imported on the driver. Where one is missing on this machine, the run that imports it says so.
    with contextlib.suppress(Exception):
        import_libraries(libraries)

    # The first optimizer of a process imports much of PyTorch's compiler.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    gc.freeze()
    gc.enable()
