"""`Effect`: what a change of a field does to a measure, with a verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dmls_ray.analysis.findings.measures import Measure, memory_of
from dmls_ray.analysis.metrics import label_of
from dmls_ray.analysis.stats.block_model import Contrast, is_decided, is_rough
from dmls_ray.analysis.stats.intervals import Estimate, Interval
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.steps import are_equal_sizes
from dmls_ray.analysis.trials.trial import Comparisons
from dmls_ray.config.options import Until

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
