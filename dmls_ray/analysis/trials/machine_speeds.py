"""How fast the machines of a sweep were, where each measured whole blocks, and what differs between their kinds."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from dmls_ray.analysis.stats.intervals import (
    Estimate,
    Interval,
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
            hosts[place], place[0], kinds[place], len(blocks), _against_others(place, speeds),
            _against_others(place, times) if len(times) == len(speeds) else None,
        )
        for place, blocks in sorted(speeds.items())
    ]  # fmt: skip


def _of_places(
    trials: Sequence[Trial], by_block: Callable[[Trial], Mapping[int, float]]
) -> dict[Place, dict[int, list[float]]]:
    """Lane -> block -> the logarithm of each run's value there, less the mean of its trial over all blocks."""
    values: dict[Place, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        places = _places(trial)
        logs = {block: math.log(value) for block, value in by_block(trial).items() if block in places and value > 0}
        mean = fmean(logs.values()) if logs else 0.0
        for block, value in logs.items():
            values[places[block]][block].append(value - mean)
    return values


def _against_others(place: Place, values: Mapping[Place, Mapping[int, Sequence[float]]]) -> Interval:
    """The ratio of the values of a lane to those of the others.

    A value is the mean of a block. Those of the lane and of the others are independent (Welch's interval), and the
    intervals of all lanes hold together.
    """
    own = [math.exp(fmean(block)) for block in values[place].values()]
    others = []
    for other, blocks in values.items():
        if other != place:
            others += [math.exp(fmean(block)) for block in blocks.values()]
    return compare_apart(own, others, level=bonferroni_level(len(values)))


def effects_that_differ(trials: Sequence[Trial]) -> dict[str, dict[str, Estimate]]:
    """The trials whose speed against the first trial differs between kinds of machine beyond chance.

    Both speeds of a ratio come from one block. The ratios of two kinds are independent (Welch's interval), and the
    intervals of all trials and pairs of kinds hold together.

    Returns:
        trial_id -> kind -> the ratio there, with an interval for itself.
    """
    found: dict[str, dict[str, list[float]]] = {}
    base, *others = trials
    for trial in others:
        found[trial.trial_id] = defaultdict(list)
        kinds = {record.repeat: kind_of_machine(record.machine) for record in trial.timed}
        places, places_of_base, rates = _places(trial), _places(base), base.rates()
        for block, rate in trial.rates().items():
            if rates.get(block, 0) > 0 and rate > 0 and places.get(block) == places_of_base.get(block):
                found[trial.trial_id][kinds[block]].append(rate / rates[block])
    pairs = [(name, *pair) for name, ratios in found.items() for pair in itertools.combinations(ratios, 2)]
    level = bonferroni_level(len(pairs))
    differing = {}
    for name, one, other in pairs:
        ratio = compare_apart(found[name][one], found[name][other], level=level)
        if is_above(ratio, 1) or is_below(ratio, 1):
            differing[name] = {kind: estimate(values, "ratio") for kind, values in found[name].items()}
    return differing


def _places(trial: Trial) -> dict[int, Place]:
    """Where a trial was measured, by block."""
    return {record.repeat: _place(record) for record in trial.timed}


def _place(record: RunRecord) -> Place:
    return record.lane, str(record.machine.get("host", ""))
