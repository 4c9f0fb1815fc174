"""How one sweep's samples of a metric relate to another's: what counts as a sample, and what is made of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import is_time, limit_of, quantity_of
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import (
    MIN_REPEATS,
    Interval,
    are_same,
    clipped,
    compare_apart,
    estimate,
    verdict_of,
)
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import is_loss
from dmls_ray.workloads.registry import metric_direction, registered_metrics

Unit = Literal["repeat", "session"]

IN_THESE_SESSIONS = "different in these sessions"
"""The verdict on what depends on the session, where too few sessions say how much."""


@dataclass(frozen=True)
class Way:
    """How B is compared with A."""

    name: str
    head: str
    null: float
    """The value that means no difference."""
    above: str
    """The verdict where the interval lies above it."""
    below: str

    @property
    def is_ratio(self) -> bool:
        return self.null == 1


SPEED = Way("speed", "speed B / A", 1, "faster", "slower")
AMOUNT = Way("amount", "B / A", 1, "more", "less")
DIFFERENCE = Way("difference", "B - A", 0, "higher", "lower")


@dataclass(frozen=True)
class Change:
    """The difference between B and A, and a word for it."""

    interval: Interval
    """B / A, of times A / B; B - A where differences are taken."""
    verdict: str
    """faster, slower, more, less, higher or lower; `not distinguished`; `unknown` where there is no interval;
    `IN_THESE_SESSIONS` where it knows nothing of what drifts from one session to the next.
    """


def way_of(metric: str) -> Way:
    """How two sweeps are compared by a metric.

    Times and memory are not paired: A's third repeat ran at another time than B's. Results of training are paired by
    repeat, which has the same seed in both.
    """
    quantity = quantity_of(metric)
    if quantity == "rate" or (quantity == "amount" and metric.endswith(("_s", "_ms_p50"))):
        return SPEED
    return AMOUNT if quantity == "amount" and not is_loss(metric) else DIFFERENCE


def drifts(metric: str) -> bool:
    """Whether the state of the machine may change a metric from one session to the next.

    So do times. A result of training follows from seed, code and data. What else a function reports may be either.
    """
    if metric not in registered_metrics():
        return metric_direction(metric) == "none"  # neither a loss nor an accuracy
    return is_time(metric) or way_of(metric) is SPEED


def unit_of(a: Results, b: Results, metric: str) -> Unit:
    """What counts as one sample of A, and of B.

    Repeats of one session have their processes, and the state of the machine, in common, and so are more similar than
    they are like another session's (Kalibera & Jones, ISMM 2013): where there are sessions enough, each is one sample.
    A process's resident memory hardly varies but from one session to the next, so repeats say nothing of it. That of a
    GPU is what was allocated, which is counted again for each run.
    """
    if way_of(metric) is DIFFERENCE and not drifts(metric):
        return "repeat"
    sides = []
    for results in (a, b):
        sides.append([record for record in results.records if record.outcome is Outcome.OK])
    if metric == "peak_mem_mib" and any(_is_resident(record) for side in sides for record in side):
        return "session"
    fewest = min(len({record.session for record in side}) for side in sides)
    return "session" if fewest >= MIN_REPEATS else "repeat"


def _is_resident(record: RunRecord) -> bool:
    """Whether peak_mem_mib of a run is the resident memory of processes that serve a whole session."""
    return record.isolation == "group" and not record.device.startswith("cuda")


@dataclass(frozen=True, kw_only=True)
class Basis:
    """By what two sweeps are compared."""

    metric: str
    unit: Unit = "repeat"
    """Whether a sample is a repeat, or the mean of a session."""

    @property
    def way(self) -> Way:
        return way_of(self.metric)

    @property
    def knows_drift(self) -> bool:
        """Whether intervals know of what changes from one session to the next, or the metric depends on none."""
        return self.unit == "session" or not drifts(self.metric)

    def samples_of(self, row: Trial) -> dict[str, float]:
        """By repeat or by session, of the runs that ended ok; where ratios are taken, those above 0."""
        by_block = row.by_block(self.metric)
        samples: dict[str, list[float]] = {}
        for record in row.counted:
            value = by_block.get(record.repeat)
            if value is None or (self.way.is_ratio and value <= 0):
                continue
            name = record.session if self.unit == "session" else str(record.repeat)
            samples.setdefault(name, []).append(value)
        return {name: self._mean(values) for name, values in samples.items()}

    def means_of(self, trials: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The mean over trials of each sample that has them all, geometric where ratios are taken.

        So a block that was slow as a whole counts once, and not as often as there are trials.
        """
        names = [name for name in trials[0] if all(name in trial for trial in trials)] if trials else []
        return {name: self._mean([trial[name] for trial in trials]) for name in names}

    def _mean(self, values: Sequence[float]) -> float:
        if len(values) == 1:
            return values[0]  # without what rounding a logarithm adds
        return statistics.geometric_mean(values) if self.way.is_ratio else statistics.fmean(values)

    def change(
        self,
        a: Mapping[str, float],
        b: Mapping[str, float],
        level: float,
        resolution: float = 0.0,
        *,
        is_once: bool = False,
    ) -> Change | None:
        """The difference between the samples of B and of A; None without samples, or without pairs to compare.

        Args:
            a: the samples of A by their names.
            b: those of B.
            level: confidence level of the interval.
            resolution: the smallest step of the values; 0 where they have none.
            is_once: whether equal values of a side say no more than one of them.
        """
        if not a or not b:
            return None
        way, sides = self.way, [[*b.values()], [*a.values()]]
        is_once = is_once and all(map(are_same, sides))
        if way is DIFFERENCE and self.unit == "repeat":
            differences = [b[name] - a[name] for name in b if name in a]
            if not differences:
                return None
            value = estimate(differences, level=level, resolution=resolution, is_once=is_once)
            interval = clipped(value, limit_of(self.metric, [*a.values(), *b.values()]))
        else:
            if way is SPEED and quantity_of(self.metric) != "rate":
                # Of times the inverse, so that more is faster.
                sides = [[1 / value for value in side] for side in sides]
            interval = compare_apart(
                *sides, level=level, is_exact=self.metric in EXACT, is_once=is_once, is_ratio=way.is_ratio
            )
        above, below = way.above, way.below
        if drifts(self.metric) and self.unit == "repeat":
            above = below = IN_THESE_SESSIONS
        return Change(interval, verdict_of(interval, way.null, above, below))
