"""What the broker, the ranks and the runs' Trainables say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.training.rank import ArtifactOptions


@dataclass(frozen=True, kw_only=True)
class RankRegistration:
    """What a rank tells of itself when it joins."""

    trainer: str
    """Name of the TorchTrainer that holds it."""
    group: str
    """Name of the trainer's present group; when Train starts its ranks anew, all of them, the group has a new one."""
    index: int
    """Its number within that trainer."""
    machine: str
    """Name of its machine, which no other of the cluster has."""
    pid: int
    device: str
    """Its accelerator, `cuda:N`; `cpu` where it has none."""
    store: tuple[str, int]
    """Host and port of the key-value store it serves, where the ranks of a run that it leads find each other."""
    node_id: str = ""
    """Ray's name of its machine."""
    process_start_time: float = 0.0
    """When its process was started, in seconds since the epoch: a pid may be given anew."""
    oom_kills: int | None = None
    """How many processes the kernel has ended there for want of memory; None where it does not tell."""
    machine_order: int = 0
    """Where its machine stands among those that runs may take; the first comes first."""
    machine_info: dict[str, Any] = field(default_factory=dict)
    """What its machine is, as `dmls_ray.records.provenance.describe_machine` tells it."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run as the broker has it: what to call, with what, on how many ranks."""

    run_id: str
    trial_id: str
    train: str
    """`module:function` of the training function."""
    config: RuntimeConfig
    device: str
    """`cpu` or `cuda`: what device=auto became."""
    backend: str
    """What backend=auto became."""
    artifacts: ArtifactOptions | None = None
    """What the run leaves beside its record."""
    prunable: bool = False
    """Whether its ranks wait after each epoch to be told to go on, or to stop."""
    skip: str = ""
    """Why it is not to be run at all."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """One rank's part in one attempt at a run."""

    lease_id: str
    train: str
    config: RuntimeConfig
    rank: int
    device: str
    backend: str | None
    machine: str
    store: tuple[str, int]
    artifacts: ArtifactOptions | None
    prunable: bool
    machines: tuple[str, ...] = ()
    """The machine of each rank of the run."""


@dataclass(frozen=True)
class Leave:
    """Instead of a lease: the rank is to end its process, and another is started in its place."""

    join_again: bool = False
    """Or only to join again: the broker is a new one, and does not know it."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long the broker waits, how often it tries, and how large a rank may grow."""

    max_retries: int = 1
    """How often a run is run again that was killed or timed out."""
    run_timeout: float | None = None
    """Seconds that one attempt at a run may take."""
    stall_timeout: float | None = None
    """Seconds that a run may go without a sign of progress of any rank."""
    give_up_after: int | None = None
    """After so many equal failures of a trial in a row its further runs are skipped."""
    recycle_above_mib: float | None = None
    """Resident set above which a rank's process is replaced between two runs."""
    wait_for_ranks: float = 60.0
    """Seconds that a run waits for ranks whose machine has left."""
