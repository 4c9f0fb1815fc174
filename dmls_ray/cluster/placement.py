"""Placement of ranks: how many a sweep starts on each machine, and on which machines a run takes its ranks.

Pure functions, without Ray and PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.config.runtime import RuntimeConfig

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
        return cls(world_size=config.world_size, machines=config.machines, threads=config.threads_per_rank)

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


def ranks_to_hold(cores: Slots, needs: Iterable[RankRequest], *, oversubscribe: bool) -> dict[str, int]:
    """The smallest number of ranks on each machine with which each run that can be placed has enough.

    Args:
        cores: CPU cores or GPUs of each machine.
        needs: requests of the runs.
        oversubscribe: whether more threads than cores are allowed.
    """
    ranks: dict[str, int] = {}
    for need in needs:
        for machine, count in place_ranks(slots_for(cores, need, oversubscribe=oversubscribe), need).items():
            ranks[machine] = max(ranks.get(machine, 0), count)
    return {machine: ranks[machine] for machine in cores if machine in ranks}
