"""Two sweeps joined by configuration: how much B differs from A, and whether the difference is beyond doubt."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dmls_ray.analysis.compare.join import Difference, by_configuration, differences, join
from dmls_ray.analysis.findings.measures import Kind, Measure, measure_of
from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import is_time, limit_of, quantity_of, resolution_of
from dmls_ray.analysis.results import Results, field_names
from dmls_ray.analysis.stats.intervals import (
    MIN_REPEATS,
    Estimate,
    Interval,
    are_same,
    as_dict,
    bonferroni_level,
    compare_apart,
    estimate,
    is_above,
    is_below,
    verdict_of,
)
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import is_loss
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import metric_direction, registered_metrics

OVER_ALL = "over all"
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


@dataclass
class Pair:
    """A trial that both sweeps have."""

    a: Trial
    b: Trial
    metric: str
    samples: tuple[Samples, Samples]
    """Those of A and of B."""
    change: Change | None = None
    """None where it did not end ok in both, or its ranks trained apart. The intervals of all pairs, and that over all,
    hold together, at 95%.
    """

    @property
    def name(self) -> str:
        return describe_configuration(self.a.factors)

    @property
    def means(self) -> list[Estimate | None]:
        """The mean of A and of B; None without a sample."""
        means: list[Estimate | None] = []
        for trial, samples in zip((self.a, self.b), self.samples, strict=True):
            values, mean = list(samples.values()), None
            if values:
                is_once = trial.is_once(self.metric)
                mean = estimate(values, quantity_of(self.metric), resolution=self.resolution, is_once=is_once)
            means.append(mean)
        return means

    @property
    def resolution(self) -> float:
        """The smallest step of the values; 0 where they have none."""
        return resolution_of(self.metric, [*self.a.counted, *self.b.counted])

    @property
    def is_once(self) -> bool:
        """Whether equal values of a side say no more than one of them."""
        return self.a.is_once(self.metric) and self.b.is_once(self.metric)

    @property
    def is_apart(self) -> bool:
        """Whether the ranks of A or of B did not train one model together, so that the two are not compared."""
        return bool(self.a.independent_ranks or self.b.independent_ranks)

    @property
    def verdict(self) -> str:
        if self.change is not None:
            return self.change.verdict
        return "independent ranks" if self.is_apart else ""

    def to_dict(self) -> dict[str, Any]:
        a, b = self.means
        return {
            "trial_id": self.a.trial_id,
            "config": self.a.factors,
            "a": a and as_dict(a),
            "b": b and as_dict(b),
            "n": [len(side) for side in self.samples],
            "change": self.change and as_dict(self.change),
            "verdict": self.verdict,
            "outcomes": [self.a.outcome, self.b.outcome],
        }


@dataclass(frozen=True, kw_only=True)
class SweepComparison:
    """The trials of two sweeps, and how much each differs between them."""

    basis: Basis
    pairs: Sequence[Pair]
    only: Mapping[str, Sequence[str]]
    """The configurations that A alone, and B alone, has, in words."""
    overall: Change | None
    """By the mean over the trials that ended ok in both, of each sample that has them all; None without one."""
    samples: tuple[int, int]
    """The number of samples of A, and of B, that have every trial."""
    provenance: Sequence[Difference]
    """What differs in where, when and with what they were measured."""

    @property
    def metric(self) -> str:
        return self.basis.measure.metric

    @property
    def compared(self) -> list[Pair]:
        """The trials that ended ok in both, and whose ranks trained together."""
        return [pair for pair in self.pairs if pair.change]

    @property
    def lost(self) -> list[str]:
        """Configurations that ended ok in A and never in B, although B tried them; they count as slower."""
        return [pair.name for pair in self.pairs if pair.a.counted and not pair.b.counted]

    def judge_slowdown(self, share: float) -> tuple[list[str], list[str]]:
        """What of B is slower by more than a share of A's speed, and of what that is unclear: `over all`, and
        configurations of both.

        Slower is what has its whole interval below 1 - share, in sessions enough to know of the drift between them.
        Where nothing is that much slower, a slowdown is reported all the same at most 1 time in 20. What was not
        compared, since its ranks trained apart, is unclear.

        Raises:
            ConfigError: the share is out of range, or the metric says nothing of speed.
        """
        if not 0 <= share < 1:
            raise ConfigError(f"--fail-if-slower {share:.4g} is out of range; give 0% or more and less than 100%.")
        if self.basis.measure.kind != "speed":
            raise ConfigError(
                f"--fail-if-slower is about speed and --measure {self.metric} is none; give a rate or a time, as "
                "images_per_s or total_s."
            )
        changes = {OVER_ALL: self.overall}
        changes |= {pair.name: pair.change for pair in self.pairs if pair.change or pair.is_apart}
        slower, unclear = [], []
        for name, change in changes.items():
            if change is None or not self.basis.knows_drift:
                unclear.append(name)
            elif is_below(change, 1 - share):
                slower.append(name)
            elif not is_above(change, 1 - share):
                unclear.append(name)
        return slower, unclear

    def to_dict(self) -> dict[str, Any]:
        """All values as plain data; intervals have the keys value, low and high."""
        kind = self.basis.measure.kind
        return {
            "metric": self.metric,
            "way": "amount" if kind == "ratio" else kind,
            "unit": self.basis.unit,
            "n": list(self.samples),
            "over_all": self.overall and as_dict(self.overall),
            "verdict": self.overall and self.overall.verdict,
            "pairs": [pair.to_dict() for pair in self.pairs],
            "only": dict(self.only),
            "provenance": [asdict(difference) for difference in self.provenance],
        }


def compare_sweeps(a: Results, b: Results, *, measure: str | None = None) -> SweepComparison:
    """Join two sweeps by configuration, and compare B with A.

    Args:
        a: the baseline.
        b: the sweep that is compared with it.
        measure: a registered metric, or a custom metric; without it images_per_s
            where both have it, else total_s.

    Raises:
        ConfigError: the sweeps have no configuration in common, or not both report the metric.
    """
    a, b = by_configuration(a, b)
    both, only = join(a, b)
    metric = _common_metric(both, measure)
    basis = basis_of(a, b, metric)
    pairs = [Pair(*trials, metric, (basis.samples_of(trials[0]), basis.samples_of(trials[1]))) for trials in both]
    compared = [pair for pair in pairs if all(pair.samples) and not pair.is_apart]
    level, level_over_all = bonferroni_level(2 * len(compared)), bonferroni_level(2)
    if len(compared) < 2:
        level = level_over_all = bonferroni_level(1)  # they are the same
    for pair in compared:
        pair.change = basis.change(*pair.samples, level=level, resolution=pair.resolution, is_once=pair.is_once)
    means_a = basis.means_of([pair.samples[0] for pair in compared])
    means_b = basis.means_of([pair.samples[1] for pair in compared])
    resolution = max(pair.resolution for pair in pairs) / max(len(compared), 1)
    is_once = all(pair.is_once for pair in pairs)
    return SweepComparison(
        basis=basis,
        pairs=pairs,
        only=only,
        overall=basis.change(means_a, means_b, level=level_over_all, resolution=resolution, is_once=is_once),
        samples=(len(means_a), len(means_b)),
        # What was run in one sweep alone makes no difference between them.
        provenance=differences(a, b, {pair.a.trial_id for pair in pairs}),
    )


def _common_metric(both: Sequence[tuple[Trial, Trial]], name: str | None) -> str:
    """By what two sweeps are compared: what was asked for; else images_per_s where both have it, or total_s.

    Raises:
        ConfigError: a sweep in which runs ended ok does not have it.
    """
    of_a, of_b = (field_names(trial.estimates for trial in trials) for trials in zip(*both, strict=True))
    common = [metric for metric in of_a if metric in of_b]
    if name is None:
        name = "images_per_s" if "images_per_s" in common else "total_s"
    for side, names in (("A", of_a), ("B", of_b)):
        if names and name not in names:
            raise ConfigError(
                f"--measure {name} is not known of {side}, or was measured in a search, whose times say nothing; "
                f"choose from {', '.join(sorted(common))}."
            )
    return name
