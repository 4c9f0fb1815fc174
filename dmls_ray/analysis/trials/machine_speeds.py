"""How fast the machines of a sweep were, where each measured whole blocks, and what differs between their kinds."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from dmls_ray.analysis.stats.intervals import (
    Estimate,
    Interval,
    are_same,
    bonferroni_level,
    compare_apart,
    estimate,
    is_above,
    is_below,
)
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord
from dmls_ray.records.provenance import kind_of_machine

Place = tuple[int, str]
"""Number of a lane, and the host of its first rank."""


@dataclass(frozen=True)
class MachineSpeed:
    """The blocks of a lane, and its speed against the others."""

    hosts: str
    """`host-1`; of a lane of several machines `host-1 + host-2`."""
    lane: int
    kind: str
    blocks: int
    against_others: Interval | None
    """The ratio of its speed to that of all other lanes together; None without a block of another lane."""
    communication: Interval | None
    """The same of the time that a step communicates; None where that is not measured."""


def machine_speeds(trials: Sequence[Trial]) -> list[MachineSpeed]:
    """The speed of each lane of a sweep, in the order of the lanes; empty where all runs were on one."""
    hosts: dict[Place, str] = {}
    kinds: dict[Place, str] = {}
    for record in itertools.chain(*(trial.timed for trial in trials)):
        place = _place(record)
        others = [text.partition(":")[0] for text in record.machine.get("beside", [])]
        # Narrower runs leave machines of the lane out.
        hosts[place] = max(hosts.get(place, ""), " + ".join([place[1], *others]), key=len)
        kinds[place] = kind_of_machine(record.machine)
    speeds = _of_places(trials, Trial.rates)
    if len({lane for lane, _ in speeds}) < 2:
        return []
    times = _of_places(trials, lambda trial: trial.by_block("comm_ms"))
    return [
        MachineSpeed(
            hosts[place], place[0], kinds[place], len(values), _against_others(place, speeds),
            _against_others(place, times) if times.keys() == speeds.keys() else None,
        )
        for place, values in sorted(speeds.items())
    ]  # fmt: skip


def _of_places(trials: Sequence[Trial], by_block: Callable[[Trial], Mapping[int, float]]) -> dict[Place, list[float]]:
    """Lane -> its blocks: the geometric mean of the values of all trials in each.

    Only of trials that were measured in the same blocks on the same lanes, as many as possible: one that failed on a
    lane, or was measured later and elsewhere, would make that lane another mean.
    """
    found = []
    for trial in trials:
        values = {block: value for block, value in by_block(trial).items() if value > 0}
        places = {record.repeat: _place(record) for record in trial.timed if record.repeat in values}
        found.append((places, values))
    most, _ = max(found, key=lambda item: len(item[0]), default=({}, {}))
    complete = [values for places, values in found if places == most]
    of_places: dict[Place, list[float]] = defaultdict(list)
    for block, place in most.items():
        of_places[place].append(geometric_mean([values[block] for values in complete]))
    return of_places


def _against_others(place: Place, values: Mapping[Place, Sequence[float]]) -> Interval:
    """The ratio of the values of a lane to those of the others, which are independent of them.

    The intervals of all lanes hold together.
    """
    others = itertools.chain(*(blocks for other, blocks in values.items() if other != place))
    return compare_apart(values[place], [*others], level=bonferroni_level(len(values)), is_one_of_many=True)


@dataclass(frozen=True)
class KindEffects:
    """Whether the speed of trials against the first one differs between kinds of machine."""

    compared: bool
    """Whether there were enough blocks to tell."""
    differing: Mapping[str, Mapping[str, Estimate]]
    """trial_id of one whose speed differs beyond chance -> kind -> the ratio there, with an interval for itself."""


def effects_of_kinds(trials: Sequence[Trial]) -> KindEffects:
    """Compare the effects on the speed between kinds of machine.

    Both speeds of a ratio come from one block. The ratios of two kinds are independent, and the intervals of all trials
    and pairs of kinds hold together.
    """
    base, *others = trials
    rates = base.rates()
    found: dict[str, dict[str, list[float]]] = {}
    for trial in others:
        found[trial.trial_id] = defaultdict(list)
        kinds = {record.repeat: kind_of_machine(record.machine) for record in trial.timed}
        common = trial.common_blocks(base) & kinds.keys()
        for block, rate in trial.rates().items():
            if block in common and rate > 0 and rates.get(block, 0) > 0:
                found[trial.trial_id][kinds[block]].append(rate / rates[block])
    pairs = [(name, *pair) for name, ratios in found.items() for pair in itertools.combinations(ratios.values(), 2)]
    level = bonferroni_level(len(pairs))
    compared = False
    differing = {}
    for name, one, other in pairs:
        ratio = compare_apart(one, other, level=level, is_one_of_many=True)
        compared = compared or ratio.low is not None
        if (is_above(ratio, 1) or is_below(ratio, 1)) and not are_same([*one, *other]):
            differing[name] = {kind: estimate(values, "ratio") for kind, values in found[name].items()}
    return KindEffects(compared, differing)


def _place(record: RunRecord) -> Place:
    return record.lane, str(record.machine.get("host", ""))
