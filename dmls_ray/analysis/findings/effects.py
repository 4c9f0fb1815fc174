"""`Measure`, by which trials are compared, and `Effect`, what a change of a field does to it, with a verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dmls_ray.analysis.metrics import MEMORY_METRICS, hardly_differs, label_of, table_metrics
from dmls_ray.analysis.results import field_names
from dmls_ray.analysis.stats.block_model import Contrast, is_decided, is_rough
from dmls_ray.analysis.stats.intervals import Estimate, Interval
from dmls_ray.analysis.trials.axis import Pair, count_values
from dmls_ray.analysis.trials.common_metrics import durations_of, memory_metric, speed_metric
from dmls_ray.analysis.trials.run_lengths import STEP_MS
from dmls_ray.analysis.trials.steps import are_equal_sizes
from dmls_ray.analysis.trials.trial import Comparisons, Trial
from dmls_ray.config.options import Until
from dmls_ray.records.metrics import LEARNED, is_loss
from dmls_ray.workloads.registry import is_compared, metric_direction

Kind = Literal["speed", "duration", "ratio", "points", "difference", "level"]
"""Which words an effect has. points: a difference of shares, in hundredths. level: a value that is compared with
nothing."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity by which trials are compared."""

    metric: str
    kind: Kind
    noun: str
    """What two trials are compared in: `speed`, `test accuracy`."""
    better: int
    """1 where more is better, -1 where less is, 0 where that is not known."""
    is_judged: bool = True
    """Whether a sweep is repeated until it is decided; else it goes along, and is shown where it differs."""
    is_outcome: bool = True
    """Whether it follows from what was run; else it is a part of that."""
    is_negligible: bool = False
    """Whether differences of these trials are of no use, however sure they are."""

    @property
    def name(self) -> str:
        """Its identifier among the measures of an answer."""
        return "speed" if self.kind == "speed" else self.metric

    @property
    def is_ratio(self) -> bool:
        """Whether one value is divided by the other; else it is subtracted."""
        return self.kind in ("speed", "duration", "ratio")

    @property
    def null(self) -> float:
        """The value of a comparison that means no difference."""
        return 1.0 if self.is_ratio else 0.0

    @property
    def is_result(self) -> bool:
        """Whether it is a loss or an accuracy: what a configuration is chosen for."""
        return is_loss(self.metric) or self.metric.endswith("accuracy")

    def best_of(self, trials: Sequence[Trial]) -> Trial:
        """The trial with the best mean."""
        return max(trials, key=lambda trial: self.better * (trial.value_of(self.metric) or 0.0))


_BETTER = {"max": 1, "min": -1, "none": 0}

MOST_MEASURES = 4
"""Measures of an answer: its table has few columns."""

_BEST_FIRST = ("test_accuracy", "test_loss", "validation_accuracy", "validation_loss", "train_accuracy", "train_loss")
"""What was learned, by how much it says of new samples."""


def speed(metric: str) -> Measure:
    """How fast runs go: by the throughput of their workload, or by runs per second."""
    return Measure(metric=metric, kind="speed", noun="speed", better=1)


def time_measure(metric: str) -> Measure:
    """A time, of a step or of a run. Of steps with other samples, neither a longer nor a shorter one is better."""
    if metric == STEP_MS:
        return Measure(metric=metric, kind="duration", noun="time of a step", better=0)
    return Measure(metric=metric, kind="duration", noun="time", better=-1)


def measure_of(metric: str, kind: Kind) -> Measure:
    """A metric as a measure, by its name and its entry in the registry."""
    noun = metric.replace("_", " ") if metric in LEARNED else metric
    return Measure(metric=metric, kind=kind, noun=noun, better=_BETTER[metric_direction(metric)])


def judged_measure(trials: Sequence[Trial], metric: str, *, minimizes: bool) -> Measure:
    """The metric by which alone trials are to be compared.

    Args:
        trials: the trials.
        metric: its name.
        minimizes: whether less of it is better.
    """
    values = [value for trial in trials for value in trial.by_block(metric).values()]
    kind: Kind = "ratio" if min(values, default=0.0) > 0 else "difference"
    measure = measure_of(metric, "points" if metric.endswith("accuracy") else kind)
    return replace(measure, better=-1 if minimizes else 1)


def measures_of(trials: Sequence[Trial]) -> list[Measure]:
    """The measures by which an answer compares trials: speed or duration, what was learned, what a user reports."""
    measures = _measures_of_time(trials)
    measured = field_names(trial.estimates for trial in trials)
    for name in [name for name in _BEST_FIRST if name in measured][:1]:
        measures.append(measure_of(name, "points" if name.endswith("accuracy") else "ratio"))
    reported: dict[str, list[float]] = {}
    for trial in trials:
        for name in trial.estimates:
            if is_compared(name) and name != trial.throughput:
                reported.setdefault(name, []).extend(trial.by_block(name).values())
    for name, values in reported.items():
        # What is equal in all runs, as a number of tokens, compares nothing.
        if len(set(values)) > 1:
            measures.append(measure_of(name, "ratio" if min(values) > 0 else "difference"))
    return [*measures[:MOST_MEASURES], *_times_asked_for(trials)]


def _times_asked_for(trials: Sequence[Trial]) -> Iterator[Measure]:
    """Times that a field asks for, of the fields in which these trials differ, as the start-up of launchers."""
    varied = {name for trial in trials[:1] for name in trial.factors if count_values(trials, name) > 1}
    for name, metric in table_metrics().items():
        is_known = any(trial.by_block(name) for trial in trials)
        if metric.is_time and varied & {*metric.asked_by} and is_known:
            better = _BETTER[metric.direction]
            yield Measure(metric=name, kind="difference", noun=metric.label, better=better, is_judged=False)


def _measures_of_time(trials: Sequence[Trial]) -> list[Measure]:
    """Speed; and times where some trials have no rate in common with the others."""
    timed = [trial for trial in trials if trial.timed]
    metric = speed_metric(*(trial for trial in timed if trial.rates()))
    rated = [trial for trial in timed if trial.by_block(metric)]
    measures = [speed(metric)] if rated else []
    if len(rated) < len(timed):
        measures += [time_measure(metric) for metric in durations_of(timed)]
    return measures


def memory_of(trials: Sequence[Trial]) -> list[Measure]:
    """The measure of the memory of some trials; none where it was not measured."""
    metric = memory_metric(trials)
    sizes = [trial.estimates[metric].centre for trial in trials if metric in trial.estimates]
    if not sizes:
        return []
    noun, is_equal = MEMORY_METRICS[metric], hardly_differs(sizes, metric)
    return [Measure(metric=metric, kind="ratio", noun=noun, better=-1, is_judged=False, is_negligible=is_equal)]


EffectVerdict = Literal["more", "less", "equal", "close", "open", "once", "level"]
"""more, less: beyond chance. equal: within what counts as no difference. close: known closely, and no difference beyond
chance. open: more repeats may decide it. once: the repeats repeat one run, so that no further one says more. level: it
is compared with nothing."""

_SETTINGS = {"steps": "optimizer steps", "scaled_lr": "lr", "samples_per_step": "samples a step"}
"""What differs along with a field and explains a speed or an accuracy -> its words."""
HOPELESS = 101
"""Repeats from which on more are not advised."""


@dataclass(frozen=True)
class Effect:
    """A trial, or the mean of several, against another one by one measure."""

    pair: Pair
    measure: Measure
    contrast: Contrast
    until: Until
    """Says which differences count as none, and how narrow an interval is wanted."""

    @property
    def key(self) -> tuple[Any, ...]:
        """The row of the table that it is in."""
        return (self.pair.key, repr(self.pair.shared), self.pair.count)

    @property
    def verdict(self) -> EffectVerdict:
        """What is known of it."""
        if self.measure.kind == "level":
            return "level"
        if self.measure.is_negligible:
            return "equal"
        if self.contrast.is_once:
            return "once"
        if self.contrast.low is None:
            return "open"
        if self.sign:
            return "more" if self.sign > 0 else "less"
        if self._is_within(0.0):
            return "equal"
        return "close" if self.is_decided else "open"

    @property
    def sign(self) -> int:
        """1 or -1 where it is above or below no difference beyond chance; without an interval, where its value is."""
        low, high = self.contrast.ends
        return (low > self.measure.null) - (high < self.measure.null)

    @property
    def gain(self) -> int:
        """1 where it is better beyond chance, -1 where it is worse."""
        return self.sign * self.measure.better

    @property
    def size(self) -> float:
        """How far it is from no difference."""
        centre = self.contrast.centre
        return abs(math.log(centre)) if self.measure.is_ratio else abs(centre)

    def is_worse(self, by: float = 0.0) -> bool:
        """Whether it is worse by more than so much and beyond chance: 0.02 for 2% of a ratio, or 0.02 of a share."""
        low, high = self.contrast.ends
        if self.measure.better < 0:
            return low > self._worse(by)
        return high < self._worse(by)

    def shown(self, by: float) -> Literal["worse", "kept", "open"]:
        """What is beyond chance: that it is worse by more than so much, or that it is not; else it is open."""
        if self.contrast.low is None:
            return "open"
        if self.is_worse(by):
            return "worse"
        low, high = self.contrast.ends
        is_kept = low >= self._worse(by)
        if self.measure.better < 0:
            is_kept = high <= self._worse(by)
        return "kept" if is_kept else "open"

    def _worse(self, by: float) -> float:
        """The value of a comparison that is worse by so much."""
        if self.measure.is_ratio:
            return 1 + by if self.measure.better < 0 else 1 / (1 + by)
        return -self.measure.better * by

    @property
    def is_decided(self) -> bool:
        """Whether more repeats have no use."""
        return self._is_within(self.until.within)

    def _is_within(self, precision: float) -> bool:
        equivalent = self.until.equivalent
        return is_decided(self.contrast, null=self.measure.null, precision=precision, equivalent=equivalent)

    @property
    def is_rough(self) -> bool:
        """Whether it is decided, and yet hardly says by how much."""
        return is_rough(self.contrast, null=self.measure.null, precision=self.until.within)

    def repeats_wanted(self) -> int | None:
        """About how many repeats decide it: its interval is as narrow as is wanted, or excludes no difference.

        If its noise stays as it is. None without an interval; `HOPELESS` if more are not advised.
        """
        wanted = math.log1p(self.until.within) if self.measure.is_ratio else self.until.within
        return self.repeats_until(max(wanted, self.size))

    def repeats_until(self, half_width: float) -> int | None:
        """About how many repeats make its interval so narrow, of ratios in the logarithm; as `repeats_wanted`."""
        after = self.contrast.half_width_after
        if after is None:
            return None
        for count in range(self.contrast.n + 1, HOPELESS):
            if after(count) <= half_width:
                return count
        return HOPELESS


def estimate_of(effect: Effect | None) -> Estimate | None:
    """The number of an effect with its interval alone, as JSON has it; None without an effect."""
    if effect is None:
        return None
    contrast = effect.contrast
    return Estimate(contrast.centre, contrast.low, contrast.high, contrast.n)


Comparison = Sequence[Effect]
"""The effects of one pair, in the order of the measures: a row of the table."""


def effect_of(
    pairs: Sequence[Pair], measure: Measure, until: Until, comparisons: Comparisons | None = None
) -> Effect | None:
    """The mean effect of some pairs of equal values; None of a trial against itself, or without a block that has all.

    Args:
        pairs: of which the first stands for all.
        measure: what they are compared by.
        until: what counts as no difference.
        comparisons: how they compare, if otherwise than in their table.
    """
    pair = pairs[0] if len(pairs) == 1 else replace(pairs[0], shared={}, count=len(pairs))
    if pair.trial is pair.base:
        return None
    trials = [(item.trial, item.base) for item in pairs]
    comparisons = comparisons or pair.trial.comparisons
    contrast = comparisons.mean(trials, measure.metric, is_ratio=measure.is_ratio)
    return None if contrast is None else Effect(pair, measure, contrast, until)


def compare(pairs: Sequence[Pair], measures: Sequence[Measure], until: Until) -> list[Effect]:
    """The effects of a pair on the measures that both trials have, memory, and what goes along with them.

    Durations only where the speeds of both are not known. Of several pairs, of the same two values in several places,
    the mean effects. Empty without a common block.
    """
    trials = itertools.chain.from_iterable((pair.trial, pair.base) for pair in pairs)
    effects: list[Effect] = []
    for measure in [*measures, *memory_of([*trials])]:
        effect = effect_of(pairs, measure, until)
        if effect is not None:
            effects.append(effect)
    if any(effect.measure.kind == "speed" for effect in effects):
        effects = [effect for effect in effects if effect.measure.kind != "duration"]
    if effects:
        effects += _settings(effects[0].pair, until)
    return effects


def compare_each(pairs: Sequence[Pair], measures: Sequence[Measure], until: Until) -> list[Comparison]:
    """The effects of each of some pairs that have a common block."""
    compared = [compare([pair], measures, until) for pair in pairs]
    return [comparison for comparison in compared if comparison]


def judged(comparisons: Sequence[Comparison]) -> list[Effect]:
    """The effects that a sweep is repeated for."""
    effects = itertools.chain.from_iterable(comparisons)
    return [effect for effect in effects if effect.measure.is_judged and not effect.contrast.is_once]


def level_of(pair: Pair, metric: str, value: Interval, n: int) -> Effect:
    """A value of the trial of a pair that is compared with nothing."""
    measure = Measure(metric=metric, kind="level", noun=label_of(metric), better=0)
    contrast = Contrast(value.centre, value.low, value.high, n, None)
    return Effect(pair, measure, contrast, Until())


def _settings(pair: Pair, until: Until) -> Iterator[Effect]:
    """What else differs between two trials: it is set, not measured, and has no chance in it."""
    n = min(len(pair.trial.counted), len(pair.base.counted))
    for metric, noun in _SETTINGS.items():
        value = next(iter(pair.trial.by_block(metric).values()), 0)
        base = next(iter(pair.base.by_block(metric).values()), 0)
        if value and base:
            ratio = value / base
            if metric == "samples_per_step" and are_equal_sizes(pair.trial, pair.base, value, base):
                ratio = 1.0
            measure = Measure(metric=metric, kind="ratio", noun=noun, better=0, is_judged=False, is_outcome=False)
            yield Effect(pair, measure, Contrast(ratio, ratio, ratio, n, 0.0), until)
