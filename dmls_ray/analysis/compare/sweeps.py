"""Two sweeps joined by configuration: how much B differs from A, and whether the difference is beyond doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from dmls_ray.analysis.compare.basis import Basis, Difference, basis_of, by_configuration, differences, join
from dmls_ray.analysis.findings.effects import Effect, estimate_of
from dmls_ray.analysis.json_objects import Compare, PairObject
from dmls_ray.analysis.metrics import format_of, is_exact, label_of, quantity_of, resolution_of
from dmls_ray.analysis.results import Results, factor_cells, field_names
from dmls_ray.analysis.stats import intervals
from dmls_ray.analysis.stats.formatting import change_text, format_interval
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.common_metrics import common_rate, durations_of
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words_on_machines import disturbance_notes
from dmls_ray.util.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

_HEADS = {"speed": "speed B / A", "ratio": "B / A", "difference": "B - A"}
"""Kind of a measure -> the heading of a change."""
_DRIFT = (
    f"This metric may drift between sessions, so a verdict needs {intervals.MIN_REPEATS} sessions of A and of B, "
    "alternating. To compare versions within blocks, make them values of a field of one sweep."
)


@dataclass
class BothTrials:
    """A trial that both sweeps have."""

    pair: Pair
    """B against A."""
    basis: Basis
    effect: Effect | None = None
    """None where it did not end ok in both, or its ranks trained apart. The intervals of all trials, and that over all,
    hold together, at 95%.
    """

    def __post_init__(self) -> None:
        self.a, self.b = self.pair.base, self.pair.trial
        self.name = describe_configuration(self.a.factors)
        self.samples = self.basis.samples_of(self.a), self.basis.samples_of(self.b)
        """Those of A and of B."""
        self.resolution = resolution_of(self.basis.measure.metric, [*self.a.counted, *self.b.counted])
        """The smallest step of the values; 0 where they have none."""
        self.is_apart = bool(self.a.independent_ranks or self.b.independent_ranks)
        """Whether the ranks of A or of B did not train one model together, so that the two are not compared."""

    @property
    def is_once(self) -> bool:
        """Whether equal values of a side say no more than one of them."""
        return self.a.is_once(self.basis.measure.metric) and self.b.is_once(self.basis.measure.metric)

    def mean(self, trial: Trial) -> intervals.Estimate | None:
        """The mean of A or of B; None without a sample."""
        values, metric = list(self.basis.samples_of(trial).values()), self.basis.measure.metric
        if not values:
            return None
        is_once = trial.is_once(metric)
        return intervals.estimate(values, quantity_of(metric), resolution=self.resolution, is_once=is_once)

    @property
    def verdict(self) -> str:
        if self.effect is not None:
            return self.basis.verdict(self.effect)
        return "independent ranks" if self.is_apart else ""

    def json_object(self) -> PairObject:
        """For programs."""
        return PairObject(
            trial_id=self.a.trial_id, config=self.a.factors,
            a=self.mean(self.a), b=self.mean(self.b), change=estimate_of(self.effect),
            verdict=self.verdict, outcomes=(self.a.outcome, self.b.outcome),
        )  # fmt: skip


@dataclass(kw_only=True)
class SweepComparison:
    """The trials of two sweeps, and how much each differs between them."""

    basis: Basis
    pairs: Sequence[BothTrials]
    only: Mapping[str, Sequence[str]]
    """The configurations that A alone, and B alone, has, in words."""
    overall: Effect | None
    """By the mean over the trials that ended ok in both, of each sample that has them all; None without one."""
    samples: tuple[int, int]
    """The number of samples of A, and of B, that have every trial."""
    provenance: Mapping[str, Difference]
    """What differs in where, when and with what they were measured: fact -> values in A and in B."""

    spare: ClassVar = ("outcome", "global_batch", "n")
    """Heads of `frame` that a narrow terminal may leave out, the first first."""

    def __post_init__(self) -> None:
        self.metric = self.basis.measure.metric
        self.compared = [pair for pair in self.pairs if pair.effect]
        """The trials that ended ok in both, and whose ranks trained together."""
        self.lost = [pair.name for pair in self.pairs if pair.a.counted and not pair.b.counted]
        """Configurations that ended ok in A and never in B, although B tried them; they count as slower."""

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
                f"--fail-if-slower needs a speed, and --measure {self.metric} is not one; give a rate or a time, such "
                "as images_per_s or total_s."
            )
        effects = {"over all": self.overall}
        effects |= {pair.name: pair.effect for pair in self.pairs if pair.effect or pair.is_apart}
        slower, unclear = [], []
        for name, effect in effects.items():
            change = estimate_of(effect)
            if not self.basis.knows_drift:
                unclear.append(name)
            elif intervals.is_below(change, 1 - share):
                slower.append(name)
            elif not intervals.is_above(change, 1 - share):
                unclear.append(name)
        return slower, unclear

    def json_object(self) -> Compare:
        """All values, for programs."""
        return Compare(
            metric=self.metric, way=self.basis.measure.kind, unit=self.basis.unit,
            over_all=estimate_of(self.overall),
            verdict=None if self.overall is None else self.basis.verdict(self.overall),
            pairs=[pair.json_object() for pair in self.pairs], only=self.only, provenance=self.provenance,
        )  # fmt: skip

    def headline(self) -> str:
        """The verdict over all trials."""
        count, unit = len(self.compared), self.basis.unit
        if not count:
            return "No configuration ended ok in both, so nothing can be compared."
        if self.overall is None:
            return f"No {unit} has all {count} configurations ok, so there is no value over all of them."
        head, effect = _HEADS[self.basis.measure.kind], self._describe(self.overall)
        n = "{} and {}".format(*self.samples)
        return (
            f"{label_of(self.metric)}, {head} over {count} configurations: {effect}, n={n} {unit}s: "
            f"{self.basis.verdict(self.overall)}."
        )

    def notes(self) -> list[str]:
        """What decides a verdict, what is not in both, and what else differs."""
        texts, unit = [], self.basis.unit
        if not self.basis.knows_drift:
            texts.append(_DRIFT)
        counts = [len(values) for pair in self.compared for values in pair.samples]
        fewest = min(counts, default=intervals.MIN_REPEATS)
        if fewest < intervals.MIN_REPEATS and not (is_exact(self.metric) and unit == "repeat"):
            texts.append(f"A verdict needs {intervals.MIN_REPEATS} {unit}s of each; there are n={fewest}.")
        for side, names in self.only.items():
            if names:
                texts.append(f"Only in {side}: {len(names)} configurations ({'; '.join(names[:4])}).")
        for name, values in self.provenance.items():
            a, b = (" and ".join(side) or "unknown" for side in values)
            texts.append(f"{name}: {a} in A, {b} in B.")
        for side, trials in (("A", [pair.a for pair in self.pairs]), ("B", [pair.b for pair in self.pairs])):
            texts += [f"{side}: {text}" for text in disturbance_notes(trials)]
        return texts

    def frame(self) -> pd.DataFrame:
        """A row a trial of both, as texts."""
        import pandas as pd

        label, form = label_of(self.metric), format_of(self.metric)
        rows = []
        for pair in self.pairs:
            outcome = pair.a.outcome
            if pair.b.outcome != outcome:
                outcome = f"{outcome} in A, {pair.b.outcome} in B"
            cells = {
                f"A {label} [95%]": format_interval(pair.mean(pair.a), form),
                f"B {label} [95%]": format_interval(pair.mean(pair.b), form),
                f"{_HEADS[self.basis.measure.kind]} [95% of all rows]": self._describe(pair.effect),
                "n": ", ".join(str(len(values)) for values in pair.samples),
                "verdict": pair.verdict,
                "outcome": outcome,
            }
            rows.append(factor_cells(pair.a.factors, other_headers=cells) | cells)
        return pd.DataFrame(rows, columns=field_names(rows), dtype=object)

    def _describe(self, effect: Effect | None) -> str:
        return change_text(estimate_of(effect), format_of(self.metric), is_ratio=self.basis.measure.is_ratio)


def compare_sweeps(a: Results, b: Results, *, measure: str | None = None) -> SweepComparison:
    """Join two sweeps by configuration, and compare B with A.

    Args:
        a: the baseline.
        b: the sweep that is compared with it.
        measure: a registered metric, or a custom metric; without it the throughput where both have the same, else the
            time of a step or of a run.

    Raises:
        ConfigError: the sweeps have no configuration in common, or not both report the metric.
    """
    a, b = by_configuration(a, b)
    both, only = join(a, b)
    basis = basis_of(a, b, _common_metric(both, (a.where, b.where), measure))
    pairs = [BothTrials(pair, basis) for pair in both]
    compared = [pair for pair in pairs if all(pair.samples) and not pair.is_apart]
    shares = min(len(compared), 2)  # one pair and all of them are the same
    level, level_over_all = intervals.bonferroni_level(shares * len(compared)), intervals.bonferroni_level(shares)
    for pair in compared:
        pair.effect = basis.compare(
            pair.pair, *pair.samples, level=level, resolution=pair.resolution, is_once=pair.is_once
        )
    means_a = basis.means_of([pair.samples[0] for pair in compared])
    means_b = basis.means_of([pair.samples[1] for pair in compared])
    resolution = max(pair.resolution for pair in pairs) / max(len(compared), 1)
    is_once = all(pair.is_once for pair in pairs)
    mean = replace(both[0], shared={}, count=len(compared))
    overall = basis.compare(mean, means_a, means_b, level=level_over_all, resolution=resolution, is_once=is_once)
    return SweepComparison(
        basis=basis,
        pairs=pairs,
        only=only,
        overall=overall,
        samples=(len(means_a), len(means_b)),
        # What was run in one sweep alone makes no difference between them.
        provenance=differences(a, b, {pair.a.trial_id for pair in pairs}),
    )


def _common_metric(both: Sequence[Pair], folders: tuple[str, str], name: str | None) -> str:
    """By what two sweeps are compared: what was asked for; else the throughput of both, or a time.

    Raises:
        ConfigError: a sweep in which runs ended ok does not have it.
    """
    of_a = field_names(pair.base.estimates for pair in both)
    of_b = field_names(pair.trial.estimates for pair in both)
    common = {*of_a} & {*of_b}
    if name is None:
        trials = [trial for pair in both for trial in (pair.base, pair.trial) if trial.counted]
        name = common_rate(trials) or next(iter(durations_of(trials)), "total_s")
    for folder, names in zip(folders, (of_a, of_b), strict=True):
        if names and name not in names:
            raise ConfigError(
                f"--measure {name} is not reported by {folder}, or is a time of a search, which is not comparable; "
                f"choose from {', '.join(sorted(common))}."
            )
    return name
