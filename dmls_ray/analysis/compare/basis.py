"""By what two sweeps are compared: samples, their means, and how they have changed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dmls_ray.analysis.findings.effects import Kind, Measure, measure_of
from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import is_time, limit_of, quantity_of
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import (
    MIN_REPEATS,
    Interval,
    are_same,
    compare_apart,
    estimate,
    verdict_of,
)
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import is_loss
from dmls_ray.workloads.registry import metric_direction, registered_metrics

IN_THESE_SESSIONS = "different in these sessions"
"""The verdict on what depends on the session, where too few sessions say how much."""
_VERDICTS = {"speed": ("faster", "slower"), "ratio": ("more", "less"), "difference": ("higher", "lower")}
"""Kind of a measure -> the verdict on an interval above no difference, and on one below it."""

Samples = Mapping[str, float]
"""The values of a trial by repeat, or the means of its sessions by session."""


@dataclass(frozen=True)
class Change(Interval):
    """B / A, of times A / B; B - A where differences are taken."""

    verdict: str
    """faster, slower, more, less, higher or lower; `not distinguished`; `unknown` where there is no interval;
    `IN_THESE_SESSIONS` where it knows nothing of what drifts from one session to the next.
    """


@dataclass(frozen=True)
class Basis:
    """By what two sweeps are compared."""

    measure: Measure
    unit: Literal["repeat", "session"] = "repeat"
    """What counts as one sample: a repeat, or the mean of a session."""

    @property
    def drifts(self) -> bool:
        """Whether the state of the machine may change the metric from one session to the next.

        So do times. A result of training follows from seed, code and data. What else a function reports may be either.
        """
        metric = self.measure.metric
        if metric not in registered_metrics():
            return metric_direction(metric) == "none"  # neither a loss nor an accuracy
        return is_time(metric) or self.measure.kind == "speed"

    @property
    def knows_drift(self) -> bool:
        """Whether intervals know of what changes from one session to the next, or the metric depends on none."""
        return self.unit == "session" or not self.drifts

    def samples_of(self, trial: Trial) -> dict[str, float]:
        """The samples of the runs that ended ok; where ratios are taken, those above 0."""
        by_block = trial.by_block(self.measure.metric)
        samples: dict[str, list[float]] = {}
        for record in trial.counted:
            value = by_block.get(record.repeat)
            if value is not None and (value > 0 or not self.measure.is_ratio):
                name = record.session if self.unit == "session" else str(record.repeat)
                samples.setdefault(name, []).append(value)
        return {name: self._mean(values) for name, values in samples.items()}

    def means_of(self, trials: Sequence[Samples]) -> dict[str, float]:
        """The mean over trials of each sample that has them all.

        So a block that was slow as a whole counts once, and not as often as there are trials.
        """
        names = [name for name in trials[0] if all(name in trial for trial in trials)] if trials else []
        return {name: self._mean([trial[name] for trial in trials]) for name in names}

    def _mean(self, values: Sequence[float]) -> float:
        if len(values) == 1:
            return values[0]  # without what rounding a logarithm adds
        return statistics.geometric_mean(values) if self.measure.is_ratio else statistics.fmean(values)

    def change(
        self, a: Samples, b: Samples, *, level: float, resolution: float = 0.0, is_once: bool = False
    ) -> Change | None:
        """The difference between the samples of B and of A; None without samples, or without pairs to compare.

        Times and memory are not paired: A's third repeat ran at another time than B's. Results of training are paired
        by repeat, which has the same seed in both.

        Args:
            a: the samples of A.
            b: those of B.
            level: confidence level of the interval.
            resolution: the smallest step of the values; 0 where they have none.
            is_once: whether equal values of a side say no more than one of them.
        """
        if not a or not b:
            return None
        metric, kind = self.measure.metric, self.measure.kind
        values, base = [*b.values()], [*a.values()]
        is_once = is_once and are_same(values) and are_same(base)
        if kind == "difference" and self.unit == "repeat":
            paired = [b[name] - a[name] for name in b if name in a]
            if not paired:
                return None
            interval: Interval = estimate(paired, level=level, resolution=resolution, is_once=is_once)
        else:
            if kind == "speed" and quantity_of(metric) != "rate":
                values, base = base, values  # of times the inverse, so that more is faster
            interval = compare_apart(
                values, base, level=level, is_exact=metric in EXACT, is_once=is_once, is_ratio=self.measure.is_ratio
            )
        verdict = verdict_of(interval, self.measure.null, *_VERDICTS[kind])
        if not self.knows_drift and verdict in _VERDICTS[kind]:
            verdict = IN_THESE_SESSIONS
        low, high = interval.low, interval.high
        if low is not None and high is not None and not self.measure.is_ratio:
            limit = limit_of(metric, [*values, *base])
            low, high = max(low, -limit), min(high, limit)
        return Change(interval.centre, low, high, verdict)


def basis_of(a: Results, b: Results, metric: str) -> Basis:
    """By what two sweeps are compared.

    Repeats of one session have their processes, and the state of the machine, in common, and so are more similar than
    they are like another session's (Kalibera & Jones, ISMM 2013): where there are sessions enough, each is one sample.
    The resident memory of processes that serve a whole session hardly varies but from one session to the next, so
    repeats say nothing of it. That of a GPU is what was allocated, which is counted again for each run.
    """
    quantity = quantity_of(metric)
    kind: Kind = "difference"
    if quantity == "rate" or (quantity == "amount" and metric.endswith(("_s", "_ms_p50"))):
        kind = "speed"
    elif quantity == "amount" and not is_loss(metric):
        kind = "ratio"
    basis = Basis(measure_of(metric, kind))
    if kind == "difference" and not basis.drifts:
        return basis
    is_resident, counts = False, []
    for results in (a, b):
        records = [record for record in results.records if record.outcome is Outcome.OK]
        counts.append(len({record.session for record in records}))
        if metric == "peak_mem_mib":
            on_host = [record for record in records if not record.device.startswith("cuda")]
            is_resident = is_resident or any(record.isolation == "group" for record in on_host)
    return Basis(basis.measure, "session") if is_resident or min(counts) >= MIN_REPEATS else basis
