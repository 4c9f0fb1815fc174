"""`plan_lanes`: the lanes that the machines of a cluster make: ranks that can serve the widest run of a sweep.

Each lane measures whole blocks (`scheduler/lanes.py`). So lanes are made of equal machines, or the answer is a mean
over several kinds of machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from dmls_ray.cluster.resources import Machine, Resources, WorkerGroupSpec, place_ranks
from dmls_ray.records.model import FIRST_LANE

LaneCount = int | Literal["auto", "all"]
"""At most so many lanes; auto: as many as there are equal machines for; all: lanes of every kind of machine."""

Lanes = Mapping[int, Mapping[str, int]]
"""Number of a lane -> machine -> ranks of the lane on it."""


def lanes_on(lanes: Lanes, machine: str) -> list[int]:
    """The numbers of the lanes that have ranks on a machine."""
    return [number for number, lane in lanes.items() if machine in lane]


def plan_lanes(
    resources: Resources, demand: WorkerGroupSpec, most: LaneCount, before: Lanes = MappingProxyType({})
) -> Lanes:
    """The lanes that these machines make, each of which serves every run.

    Args:
        resources: the machines.
        demand: what the runs ask for.
        most: how many there may be.
        before: the lanes so far. Those stay that serve every run, and whose machines are all there.
    """
    if most == 1:
        return {FIRST_LANE: resources.ranks_to_hold(demand)}
    by_name = {machine.name: machine for machine in resources.machines}
    kept = {}
    for number, lane in before.items():
        is_whole = lane.keys() <= by_name.keys() and all(place_ranks(lane, need) for need in demand.needs)
        if lane and is_whole:
            kept[number] = lane
    used = set(itertools.chain(*kept.values()))
    further: dict[Hashable, list[dict[str, int]]] = {}
    for kind in dict.fromkeys(machine.equals for machine in resources.machines):
        free = [machine for machine in resources.machines if machine.equals == kind and machine.name not in used]
        further[kind] = _divided(Resources(tuple(free)), demand)
        # Lanes of one machine are checked before the first run.
        if not before and isinstance(most, int) and len(further[kind]) < most and free and most % len(free) == 0:
            further[kind] = _divided_within(free, demand, most // len(free)) or further[kind]
    # Lanes of several kinds of machine only where they are asked for.
    more = list(itertools.chain(*further.values()))
    if most != "all" and used:
        more = further[by_name[min(used)].equals]
    elif most != "all":
        more = max(further.values(), key=len, default=[])
    numbers = [number for number in range(FIRST_LANE, len(kept) + len(more) + FIRST_LANE) if number not in kept]
    if isinstance(most, int):
        numbers = numbers[: most - len(kept)]
    lanes = kept | dict(zip(numbers, more, strict=False))
    # A single lane may be of any machines.
    return lanes if kept or len(lanes) > 1 else {FIRST_LANE: resources.ranks_to_hold(demand)}


def _divided_within(machines: Sequence[Machine], demand: WorkerGroupSpec, lanes: int) -> list[dict[str, int]]:
    """So many lanes on each machine; none if an equal share of one does not suffice for every run."""
    found: list[dict[str, int]] = []
    for machine in machines:
        share = Resources((replace(machine, cores=machine.cores // lanes, gpus=machine.gpus // lanes),))
        if not all(share.placed(need, demand) for need in demand.needs):
            return []
        found += [share.ranks_to_hold(demand)] * lanes
    return found


def _divided(resources: Resources, demand: WorkerGroupSpec) -> list[dict[str, int]]:
    """As many lanes as these machines suffice for."""
    lanes = []
    left = resources
    while all(left.placed(need, demand) for need in demand.needs):
        lane = left.ranks_to_hold(demand)
        if not lane:
            break
        lanes.append(lane)
        left = Resources(tuple(machine for machine in left.machines if machine.name not in lane))
    return lanes
