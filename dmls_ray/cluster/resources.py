"""What the machines of a cluster have for ranks, whether a trial fits on them, and which machines its ranks take."""

from __future__ import annotations

import math
import operator
import os
import socket
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dmls_ray.cluster.compat import draining_nodes
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.provenance import machine_facts
from dmls_ray.util.cores import usable_cores
from dmls_ray.util.errors import ClusterError


@dataclass(frozen=True)
class Machine:
    """What one machine has for ranks."""

    name: str
    """Unique in the cluster."""
    node_id: str
    """Ray's name of the node; empty for this machine before Ray has started."""
    cores: int
    gpus: int
    kind: str = ""
    """Its processor, memory and GPUs. Machines of one kind with as many cores and GPUs are equal."""

    @property
    def equals(self) -> tuple[str, int, int]:
        """What equal machines have in common."""
        return self.kind, self.cores, self.gpus


@dataclass(frozen=True)
class Resources:
    """What all machines offer together."""

    machines: tuple[Machine, ...]
    """In the order in which ranks are placed on them."""
    more: str = "ray start --address=..."
    """How further machines are had."""

    @property
    def cores(self) -> int:
        return sum(machine.cores for machine in self.machines)

    @property
    def gpus(self) -> int:
        return sum(machine.gpus for machine in self.machines)

    def with_kinds(self, kinds: Mapping[str, str]) -> Resources:
        """The same machines with their kinds.

        Args:
            kinds: Ray's id of a machine -> its kind.
        """
        machines = [replace(machine, kind=kinds.get(machine.node_id, "")) for machine in self.machines]
        return replace(self, machines=tuple(machines))

    def without(self, left_out: Collection[str]) -> Resources:
        """The other machines.

        Args:
            left_out: names.
        """
        return replace(self, machines=tuple(machine for machine in self.machines if machine.name not in left_out))

    @property
    def has_this_machine(self) -> bool:
        """Whether ranks can be where this process is."""
        return socket.gethostname() in {machine.name.partition(" (")[0] for machine in self.machines if machine.cores}

    def capacity(self, device: str) -> dict[str, int]:
        """By machine: its CPU cores, or its GPUs. A head may offer nothing (ray start --head --num-cpus=0)."""
        of_device = operator.attrgetter("gpus" if device == "cuda" else "cores")
        return {machine.name: of_device(machine) for machine in self.machines if machine.cores}

    def oversubscribes(self, config: RuntimeConfig) -> bool:
        """Whether the trial's ranks have fewer cores than threads."""
        return not _fits(self.capacity("cpu"), RankRequest.of(config))

    def infeasible_reason(self, config: RuntimeConfig, *, oversubscribe: bool, holds_gpus: bool = False) -> str:
        """Why a configuration is not feasible here, and the way out; empty if it is.

        Args:
            config: the configuration.
            oversubscribe: whether more threads than cores are allowed.
            holds_gpus: whether each rank of the worker group that would serve it holds a GPU; see `holds_gpus`.
        """
        device, need = config.device_for(self.gpus), RankRequest.of(config)
        fits_gpus = _fits(self.capacity("cuda"), replace(need, threads=1))
        if device == "cuda" and not fits_gpus:
            return self._too_few(need, "cuda", "or pass --device cpu")
        if reason := config.infeasible_reason(device):
            return reason
        if device == "cpu" and not _fits(self.capacity("cpu"), need, oversubscribe=oversubscribe):
            return self._too_few(need, "cpu", "or pass --oversubscribe")
        if holds_gpus and not fits_gpus:
            return f"{need} on the CPU does not fit next to runs on {self.gpus} GPUs; run it with --device cpu alone."
        return ""

    def _too_few(self, need: RankRequest, device: str, way_out: str) -> str:
        """Why a run does not fit on the GPUs or on the cores, and the way out."""
        place = "this machine" if len(self.machines) == 1 else "this cluster"
        if device == "cuda" and not self.gpus:
            add = f"Add machines that have one ({self.more})"
            return f"device=cuda needs a GPU and {place} has none. {add}, {way_out} where that will do."
        able = sum(1 for count in self.capacity(device).values() if count)
        if need.machines is not None and need.machines > able:
            has = "this is one" if len(self.machines) == 1 else f"{place} has {able}"
            gpus = " with a GPU" if device == "cuda" else ""
            add = f"add machines ({self.more}), or lower --machines"
            return f"machines={need.machines} needs as many machines{gpus}, and {has}; {add}."
        counts = ", ".join(str(count) for count in self.capacity(device).values())
        things = "GPUs" if device == "cuda" else "cores"
        threads = f" x threads_per_rank={need.threads}" if need.threads > 1 else ""
        lack = f"does not fit on {place} of {counts} {things}"
        return f"{need}{threads} {lack}. Lower it, add machines ({self.more}), {way_out}."

    def ranks_to_hold(self, demand: WorkerGroupSpec) -> dict[str, int]:
        """By machine: the smallest number of ranks with which each run that can be placed has enough."""
        ranks: dict[str, int] = {}
        for need in demand.needs:
            for machine, count in self.placed(need, demand).items():
                ranks[machine] = max(ranks.get(machine, 0), count)
        return {machine.name: ranks[machine.name] for machine in self.machines if machine.name in ranks}

    def placed(self, need: RankRequest, demand: WorkerGroupSpec) -> dict[str, int]:
        """How many ranks of a run go on which machine; empty if they do not fit."""
        on_gpus = demand.device == "cuda"
        if on_gpus:
            need = replace(need, threads=1)
        slots = slots_for(self.capacity(demand.device), need, oversubscribe=demand.oversubscribe and not on_gpus)
        return place_ranks(slots, need)

    def holds_gpus(self, configs: Iterable[RuntimeConfig]) -> bool:
        """Whether a worker group that serves all of these configurations holds a GPU for each rank.

        A run on the CPU in such a group can have no more ranks than there are GPUs.
        """
        return self.gpus > 0 and any(config.device_for(self.gpus) == "cuda" for config in configs)


def _fits(capacity: dict[str, int], need: RankRequest, *, oversubscribe: bool = False) -> bool:
    return bool(place_ranks(slots_for(capacity, need, oversubscribe=oversubscribe), need))


def local_resources() -> Resources:
    """What this machine has for this process (affinity and container limits count); starts nothing."""
    return Resources((Machine(socket.gethostname(), "", usable_cores(), usable_gpus()),))


def cluster_resources() -> Resources:
    """The machines of the connected cluster that stay, the largest first, and this machine before others of its size.

    With this order, runs that fit on one machine all take the same machine, whatever their number of ranks.
    """
    import ray

    draining = draining_nodes()
    alive = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in draining]
    same = Counter(node["NodeManagerHostname"] for node in alive)
    machines = []
    for node in alive:
        has, name, address = node["Resources"], node["NodeManagerHostname"], node["NodeManagerAddress"]
        name = name if same[name] == 1 else f"{name} ({address})"
        machines.append(Machine(name, node["NodeID"], int(has.get("CPU", 0)), int(has.get("GPU", 0))))
    here = ray.get_runtime_context().get_node_id()

    def place(machine: Machine) -> tuple[int, int, bool, list[tuple[int, str]]]:
        # host-2 comes before host-10.
        parts = [(len(part), part) for part in machine.name.split("-")]
        return -machine.gpus, -machine.cores, machine.node_id != here, parts

    return Resources(tuple(sorted(machines, key=place)))


_NO_GPU = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that leave out all GPUs on purpose."""


_DEVICE_FILES = ("nvidia*", "nvhost*", "nvmap", "dxg", "kfd", "dri/render*", "accel*", "hl[0-9]*", "davinci*")
"""Files of the accelerators that PyTorch knows, below /dev: of NVIDIA, WSL, AMD, Intel, Gaudi and Ascend."""


def may_have_accelerator(devices: Path = Path("/dev")) -> bool:
    """Whether this machine may have an accelerator; PyTorch, which knows it, takes seconds to load."""
    return sys.platform != "linux" or any(path for pattern in _DEVICE_FILES for path in devices.glob(pattern))


def usable_gpus() -> int:
    """GPUs of this machine that ranks of this process can use: those of CUDA that PyTorch finds."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in _NO_GPU or not may_have_accelerator():
        return 0
    import torch

    return torch.cuda.device_count() if torch.version.cuda else 0


def _other_accelerators() -> list[str]:
    """Accelerators that PyTorch can use and ranks cannot; not the GPU of a Mac, which has no collectives for DDP."""
    if not may_have_accelerator():
        return []
    import torch

    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type == "mps":
        return []
    name = "ROCm" if torch.version.hip else accelerator.type
    return [name] * torch.accelerator.device_count()


def check_accelerator(resources: Resources, configs: Iterable[RuntimeConfig]) -> None:
    """Refuse device=auto where it means CPUs only because ranks cannot use the GPUs of this machine.

    Args:
        resources: the machines that ranks run on. The others are not looked at.
        configs: the configurations to run.

    Raises:
        ClusterError: with what this machine has.
    """
    is_cpu = resources.gpus == 0 and any(config.device == "auto" for config in configs)
    is_on_purpose = os.environ.get("CUDA_VISIBLE_DEVICES") in _NO_GPU
    if not is_cpu or is_on_purpose or not resources.has_this_machine or usable_gpus():
        return
    if names := machine_facts()["gpus"] or _other_accelerators():
        raise ClusterError(
            f"device=auto: ranks cannot use this machine's GPUs ({', '.join(names)}). Install PyTorch for CUDA "
            "where they have it, or pass --device cpu to train on its CPU."
        )


Slots = Mapping[str, int]
"""Number of ranks that fit on each machine, the preferred machine first."""


@dataclass(frozen=True, kw_only=True)
class RankRequest:
    """The number of ranks of a run, and of the machines that they run on."""

    world_size: int
    machines: int | None = None
    """None: as few as possible."""
    threads: int = 1
    """Threads of a rank."""

    @classmethod
    def of(cls, config: RuntimeConfig) -> RankRequest:
        return cls(world_size=config.world_size, machines=config.machines, threads=config.threads_per_rank or 1)

    @property
    def per_machine(self) -> int:
        """Ranks on each machine, if a number of machines was requested."""
        assert self.machines is not None
        return self.world_size // self.machines

    def __str__(self) -> str:
        if self.machines is None:
            return f"world_size={self.world_size}"
        return f"machines={self.machines} ranks_per_machine={self.per_machine}"


@dataclass(frozen=True, kw_only=True)
class WorkerGroupSpec:
    """Requirements of the runs of a sweep."""

    needs: Sequence[RankRequest]
    device: str
    """`cpu`, or `cuda` to hold a GPU per rank."""
    oversubscribe: bool = False
    """Allow more ranks than cores."""
    data: Sequence[tuple[Any, ...]] = ()
    """Data sets that each machine prepares before its ranks serve."""
    user_code_entry: str = ""
    """As `TrainerSettings.user_code_entry`."""
    preload: str = ""
    """As `TrainerSettings.preload`."""
    user_code: str = ""
    """Digest of the user's code that ranks import before their first run; empty if they import none."""


def place_ranks(slots: Slots, need: RankRequest) -> dict[str, int]:
    """How many ranks go on which machine; empty if they do not fit.

    As many machines as requested, each with its share; without a request the first machine that fits all ranks, else
    as few machines as possible, those with most slots first.
    """
    if need.machines is not None:
        able = [machine for machine, free in slots.items() if free >= need.per_machine]
        return dict.fromkeys(able[: need.machines], need.per_machine) if len(able) >= need.machines else {}
    for machine, free in slots.items():
        if free >= need.world_size:
            return {machine: need.world_size}
    taken: dict[str, int] = {}
    left = need.world_size
    for machine in sorted(slots, key=lambda name: -slots[name]):
        if left and slots[machine]:
            taken[machine] = min(left, slots[machine])
            left -= taken[machine]
    return {} if left else taken


def slots_for(cores: Slots, need: RankRequest, *, oversubscribe: bool) -> dict[str, int]:
    """Number of a run's ranks that fit on each machine: one core per thread.

    If that does not suffice and `oversubscribe` is set, a share in proportion to the cores of the machine.
    """
    slots = {machine: count // need.threads for machine, count in cores.items()}
    if place_ranks(slots, need) or not oversubscribe:
        return slots
    if need.machines is not None:
        return {machine: need.per_machine if count else 0 for machine, count in cores.items()}
    together = max(sum(cores.values()), 1)
    return {machine: math.ceil(need.world_size * count / together) for machine, count in cores.items()}
