"""Two sweeps joined by configuration: how much B differs from A, and whether the difference is beyond doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from dmls_ray.analysis.compare.change import SPEED, Basis, Change, unit_of, way_of
from dmls_ray.analysis.compare.join import by_configuration, common_metric, join
from dmls_ray.analysis.compare.provenance import Difference, differences
from dmls_ray.analysis.metrics import quantity_of, resolution_of, table_metrics
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import Estimate, as_dict, bonferroni_level, estimate, is_above, is_below
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.util.errors import ConfigError

OVER_ALL = "over all"


@dataclass
class Pair:
    """A trial that both sweeps have."""

    basis: Basis
    a: Trial
    b: Trial
    change: Change | None = None
    """None where it did not end ok in both, or its ranks trained apart. The intervals of all pairs, and that over all,
    hold together, at 95%.
    """

    @property
    def name(self) -> str:
        return describe_configuration(self.a.factors)

    @cached_property
    def samples(self) -> tuple[dict[str, float], dict[str, float]]:
        """The values of A and of B by the name of the sample."""
        return self.basis.samples_of(self.a), self.basis.samples_of(self.b)

    @property
    def means(self) -> list[Estimate | None]:
        """The mean of A and of B; None without a sample."""
        metric = self.basis.metric
        means: list[Estimate | None] = []
        for row, samples in zip((self.a, self.b), self.samples, strict=True):
            values, mean = list(samples.values()), None
            if values:
                is_once = row.is_once(metric)
                mean = estimate(values, quantity_of(metric), resolution=self.resolution, is_once=is_once)
            means.append(mean)
        return means

    @property
    def resolution(self) -> float:
        """The smallest step of the values; 0 where they have none."""
        return resolution_of(self.basis.metric, [*self.a.counted, *self.b.counted])

    @property
    def is_once(self) -> bool:
        """Whether equal values of a side say no more than one of them."""
        return self.a.is_once(self.basis.metric) and self.b.is_once(self.basis.metric)

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
            "change": self.change and as_dict(self.change.interval),
            "verdict": self.verdict,
            "outcomes": [self.a.outcome, self.b.outcome],
        }


@dataclass(frozen=True, kw_only=True)
class SweepComparison(Basis):
    """The trials of two sweeps, and how much each differs between them."""

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
        if self.way is not SPEED:
            speeds = ", ".join(name for name in table_metrics() if way_of(name) is SPEED)
            raise ConfigError(
                f"--fail-if-slower is about speed and --measure {self.metric} is none; give one of {speeds}."
            )
        changes = {OVER_ALL: self.overall}
        changes |= {pair.name: pair.change for pair in self.pairs if pair.change or pair.is_apart}
        slower, unclear = [], []
        for name, change in changes.items():
            if change is None or not self.knows_drift:
                unclear.append(name)
            elif is_below(change.interval, 1 - share):
                slower.append(name)
            elif not is_above(change.interval, 1 - share):
                unclear.append(name)
        return slower, unclear

    def to_dict(self) -> dict[str, Any]:
        """All values as plain data; intervals have the keys value, low and high."""
        return {
            "metric": self.metric,
            "way": self.way.name,
            "unit": self.unit,
            "n": list(self.samples),
            "over_all": self.overall and as_dict(self.overall.interval),
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
    metric = common_metric(a, b, measure)
    basis = Basis(metric=metric, unit=unit_of(a, b, metric))
    pairs = [Pair(basis, *rows) for rows in both]
    compared = [pair for pair in pairs if all(pair.samples) and not pair.is_apart]
    level, level_over_all = bonferroni_level(2 * len(compared)), bonferroni_level(2)
    if len(compared) < 2:
        level = level_over_all = bonferroni_level(1)  # they are the same
    for pair in compared:
        pair.change = basis.change(*pair.samples, level, pair.resolution, is_once=pair.is_once)
    means_a = basis.means_of([pair.samples[0] for pair in compared])
    means_b = basis.means_of([pair.samples[1] for pair in compared])
    resolution = max(pair.resolution for pair in pairs) / max(len(compared), 1)
    overall = basis.change(means_a, means_b, level_over_all, resolution, is_once=all(pair.is_once for pair in pairs))
    return SweepComparison(
        metric=metric,
        unit=basis.unit,
        pairs=pairs,
        only=only,
        overall=overall,
        samples=(len(means_a), len(means_b)),
        # What was run in one sweep alone makes no difference between them.
        provenance=differences(a, b, {pair.a.trial_id for pair in pairs}),
    )
