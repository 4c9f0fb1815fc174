"""What the machines of a cluster have for ranks, and whether a trial fits on them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

import joblib

from dmls_ray.machine import describe_machine
from dmls_ray.placement import Placed
from dmls_ray.plan import Plan


@dataclass(frozen=True)
class Machine:
    """What one machine offers to ranks."""

    name: str
    node_id: str
    """Ray's name of the node; empty for this machine before Ray has started."""
    cores: int
    gpus: int


@dataclass(frozen=True)
class Resources:
    """What all machines offer together."""

    machines: tuple[Machine, ...]

    @property
    def cores(self) -> int:
        return sum(machine.cores for machine in self.machines)

    @property
    def gpus(self) -> int:
        return sum(machine.gpus for machine in self.machines)

    def device_of(self, config: Placed) -> str:
        """`cpu` or `cuda`: what device=auto is here."""
        return config.device_for(self.gpus)

    def backend_of(self, config: Placed) -> str:
        """`nccl` or `gloo`: what backend=auto is here."""
        return config.backend_for(self.gpus)

    def oversubscribes(self, config: Placed) -> bool:
        """Whether the trial's ranks have fewer cores than threads."""
        return config.world_size * config.threads_per_rank > self.cores

    def objection(self, config: Placed, *, oversubscribe: bool) -> str:
        """Why the trial is not feasible here, and the way out; empty where it is."""
        device, ranks = self.device_of(config), config.world_size
        place = "this machine" if len(self.machines) == 1 else "this cluster"
        if device == "cuda" and ranks > self.gpus:
            return (
                f"world_size={ranks} needs {ranks} GPUs; {place} has {self.gpus}. Lower --world-size, add machines "
                "(ray start --address=...), or pass --device cpu."
            )
        if reason := config.objection_on(device):
            return reason
        if device == "cpu" and self.oversubscribes(config) and not oversubscribe:
            threads = f" x threads_per_rank={config.threads_per_rank}" if config.threads_per_rank > 1 else ""
            return (
                f"world_size={ranks}{threads} needs {ranks * config.threads_per_rank} cores; {place} has {self.cores}. "
                "Lower it, add machines (ray start --address=...), or pass --oversubscribe."
            )
        return ""

    def judge(self, plan: Plan, *, oversubscribe: bool) -> Callable[[Placed], str]:
        """`objection` for the trials of one plan, which are served by one worker group.

        A group that serves GPU runs holds a GPU a rank, so a CPU run in it can have no more ranks than there are GPUs.
        """
        configs = [run.config for run in plan.runs if run.config is not None]
        holds_gpus = self.gpus > 0 and any(self.device_of(config) == "cuda" for config in configs)

        def reason(config: Placed) -> str:
            objection = self.objection(config, oversubscribe=oversubscribe)
            if not objection and holds_gpus and config.world_size > self.gpus:
                return (
                    f"world_size={config.world_size} on the CPU does not fit beside runs on {self.gpus} GPUs; "
                    "run it with --device cpu alone."
                )
            return objection

        return reason


def local_resources() -> Resources:
    """What this machine offers, to this process (affinity and container limits count); starts nothing."""
    return Resources((Machine(socket.gethostname(), "", joblib.cpu_count(), _local_gpus()),))


def cluster_resources() -> Resources:
    """What the connected cluster offers."""
    import ray

    machines = []
    for node in ray.nodes():
        if node["Alive"]:
            has = node["Resources"]
            machines.append(
                Machine(
                    node["NodeManagerHostname"],
                    node["NodeID"],
                    int(has.get("CPU", 0)),
                    int(has.get("GPU", 0)),
                )
            )
    return Resources(tuple(sorted(machines, key=lambda machine: machine.node_id)))


def free_resources() -> dict[str, float]:
    """What of the connected cluster nobody holds now, by Ray's names: CPU, GPU."""
    import ray

    free: dict[str, float] = ray.available_resources()
    return free


def _local_gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([item for item in visible.split(",") if item.strip() not in ("", "-1")])
    return len(describe_machine()["gpus"])
