"""Messages between the driver, the broker, the ranks and the runs' Trainables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.model import FIRST_LANE
from dmls_ray.training.rank import ArtifactOptions, RankInfo


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """What a TorchTrainer and its ranks need to serve the broker."""

    broker: str
    """Name of the broker."""
    trainer: str
    """Name of the TorchTrainer."""
    storage: str
    """Folder of Ray Train's files."""
    working_dir: str
    """Working directory of the driver."""
    module_path: tuple[str, ...]
    """`module_path` of the driver."""
    machine_names: Mapping[str, str] = field(default_factory=dict)
    """Ray's id of a machine -> its name, unique in the cluster."""
    machine_order: Mapping[str, int] = field(default_factory=dict)
    """Name of a machine -> its position in the order in which runs take machines."""
    data: tuple[tuple[Any, ...], ...] = ()
    """Workload and arguments of each data set that the first rank prepares."""
    share: tuple[int, int] = (0, 1)
    """Which of how many equal shares of its machine's cores its ranks have: of several lanes on a machine, each has its
    own."""
    user_code_entry: str = ""
    """Entry point of the runs with user code, `module:function`; empty if there are none."""
    preload: str = ""
    """Libraries that are imported once for these runs, as those of `import_libraries`; empty without any."""


@dataclass(frozen=True, kw_only=True)
class ExpectedTrainer:
    """What the broker expects of a trainer."""

    ranks: int
    machine: str = ""
    """Name of its machine; empty if its ranks may be anywhere."""
    is_optional: bool = False
    """It is of another lane than the first, or its machine joined later: the sweep continues without it, and runs that
    find other ranks do not wait for it until it has served."""
    lane: int = FIRST_LANE
    """The lane of its ranks."""


@dataclass(frozen=True, kw_only=True)
class RankDeath:
    """What Ray reports about the death of a rank."""

    memory: str = ""
    """Evidence that it was killed for lack of memory; empty without."""
    left: bool = False
    """Whether its machine is gone with it."""


@dataclass(frozen=True, kw_only=True)
class RankRegistration:
    """What a rank reports about itself when it joins."""

    trainer: str
    """Name of its TorchTrainer."""
    group: str
    """Name of the trainer's current group. When Train restarts a trainer's ranks, the new group has another name."""
    index: int
    """Number of the rank within its trainer."""
    machine: str
    """Name of its machine, unique in the cluster."""
    pid: int
    device: str
    """Its accelerator, `cuda:N`; `cpu` without one."""
    store: tuple[str, int]
    """Host and port of the key-value store that it serves. The ranks of a run that it leads meet there."""
    node_id: str = ""
    """Ray's id of its machine."""
    process_started: float = 0.0
    """When its process started, in seconds since 1970: pids are reused."""
    machine_order: int = 0
    """Position of its machine in the order in which runs take machines; the lowest comes first."""
    machine_info: dict[str, Any] = field(default_factory=dict)
    """Description of its machine, by `dmls_ray.records.provenance.machine_facts`."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run as the broker sees it: what to call, with which configuration, on how many ranks."""

    run_id: str
    trial_id: str
    config: RuntimeConfig
    block: int = 0
    """The block of the run: all runs of a block are measured on one lane."""
    lane: int = 0
    """The lane on which the block is to be measured; 0: any."""
    near: str = ""
    """Name of the machine on which earlier runs of the block were measured; empty if there are none."""
    train: str = ""
    """`module:function` of the training function."""
    device: str = ""
    """`cpu` or `cuda`: resolved from device=auto."""
    backend: str = ""
    """Resolved from backend=auto."""
    identity: Identity = field(default_factory=Identity)
    """The code and the data of the run."""
    artifacts: ArtifactOptions | None = None
    """Files that the run leaves next to its record."""
    prunable: bool = False
    """Whether its ranks wait after each epoch for the decision to continue or to stop."""
    skip: str = ""
    """Why the run is not to be started; nothing else of such a job is read but the names of the run."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The part of one rank in one attempt at a run."""

    lease_id: str
    job: Job
    rank: RankInfo


@dataclass(frozen=True)
class Leave:
    """Reply in place of a lease: the rank ends its process, and another is started in its place."""
