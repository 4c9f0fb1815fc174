"""How fast the machines of a sweep were, where each measured whole blocks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from dmls_ray.analysis.stats.intervals import Interval, bonferroni_level, compare_apart
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.provenance import kind_of_machine


@dataclass(frozen=True)
class MachineSpeed:
    """The blocks of a lane, and its speed against the others."""

    host: str
    """Of its first rank."""
    lane: int
    kind: str
    blocks: int
    against_others: Interval | None
    """The ratio of its speed to that of all other lanes together; None without a block of another lane."""


def machine_speeds(trials: Sequence[Trial]) -> list[MachineSpeed]:
    """The speed of each lane of a sweep, in the order of the lanes; empty where all runs were on one.

    A value is the mean over a block of each run's logarithm of the speed, less that of its trial over all blocks. The
    values of a lane and those of the others are independent (Welch's interval), and all intervals hold together.
    """
    values: dict[tuple[int, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    kinds = {}
    for trial in trials:
        places = {}
        for record in trial.timed:
            place = (record.lane, str(record.machine.get("host", "")))
            places[record.repeat] = place
            kinds[place] = kind_of_machine(record.machine)
        speeds = {block: math.log(value) for block, value in trial.rates().items() if block in places and value > 0}
        mean = fmean(speeds.values()) if speeds else 0.0
        for block, speed in speeds.items():
            values[places[block]][block].append(speed - mean)
    if len({lane for lane, _ in values}) < 2:
        return []
    level = bonferroni_level(len(values))
    found = []
    for place, blocks in sorted(values.items()):
        own = [math.exp(fmean(block)) for block in blocks.values()]
        others = []
        for other, its_blocks in values.items():
            if other != place:
                others += [math.exp(fmean(block)) for block in its_blocks.values()]
        lane, host = place
        found.append(MachineSpeed(host, lane, kinds[place], len(own), compare_apart(own, others, level=level)))
    return found
