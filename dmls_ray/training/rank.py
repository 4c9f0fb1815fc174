"""What a rank is told about itself by whoever launches it, and the type of a training function."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Keep:
    """What a run leaves beside its record."""

    folder: str
    """The run's own folder; on several machines, on a disk that they share."""
    checkpoints: bool = False
    """Save after each epoch, and go on from there if the run is cut short."""
    weights: bool = False
    """Save the final weights."""


@dataclass(frozen=True, kw_only=True)
class RankInfo:
    """One worker process of a run.

    Whoever launches the rank owns the process group: at world size above 1 the default group exists when the training
    function is called, and is destroyed after it.
    """

    rank: int = 0
    """Number of this rank, from 0 to world_size - 1."""
    world_size: int = 1
    """Number of ranks in this run."""
    device: str = "cpu"
    """Where this rank trains: `cpu` or `cuda:N`."""
    backend: str | None = None
    """Backend of the default process group; None at world size 1."""
    machine: str = "localhost"
    """Name of the machine this rank is on."""
    keep: Keep | None = None
    """What to leave beside the record; None: nothing."""
    asks: bool = False
    """Whether the run may be stopped after an epoch (search mode): then every rank emits its epochs, and waits for the
    answer."""
    assigned_at: float = field(default_factory=time.perf_counter, compare=False)
    """When this rank was given the run, by its own time.perf_counter: making the process group is part of the run."""


Emit = Callable[[dict[str, Any]], bool | None]
"""Takes one event of a running trial, a dict of plain values with the key `kind`; returns at once, but for an epoch of
a rank that asks: False says that the run is to stop here.

Of kind `epoch` (rank 0's) it becomes a row of the record; one of kind `progress` only says that the rank gets on."""

TrainFunction = Callable[[Any, RankInfo, Emit], dict[str, Any]]
"""What a worker group serves: `train(config, rank, emit)` returns this rank's result as a dict of plain values."""
