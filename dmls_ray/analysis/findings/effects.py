"""`Effect`: what a change of a field does to a metric, as numbers with a verdict."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmls_ray.analysis.findings.measures import Level, Measure, Setting, Verdict, memory_of
from dmls_ray.analysis.stats.block_model import Contrast, is_decided, is_rough
from dmls_ray.analysis.stats.intervals import Estimate, Interval
from dmls_ray.analysis.trials.axis import Axis
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.config.until import Until

_SETTINGS = ("steps", "scaled_lr")
"""What differs along with a field and explains an accuracy: optimizer steps, and the learning rate that was used."""
_MOST_COUNTED = 100_000
"""Repeats beyond which none are counted."""


@dataclass(frozen=True)
class Pair:
    """Two trials that are compared."""

    field: str
    """The field in which they differ; empty if in several."""
    label: str
    """Their names: `batch_per_rank 64 vs 32`."""
    where: str
    """What they share, and other pairs with these names do not: `2 ranks`; of means, `mean of 4`."""
    row: Row
    base: Row

    @property
    def is_within_trial(self) -> bool:
        """Whether two values of the same runs are compared."""
        return self.row is self.base


@dataclass(frozen=True)
class Effect:
    """A trial, or the mean of several, against another one by one measure."""

    pair: Pair
    measure: Measure
    contrast: Contrast
    until: Until
    """Says which differences count as none, and how narrow an interval is wanted."""

    @property
    def key(self) -> tuple[str, str]:
        """The row of the table that it is in."""
        return (self.pair.label, self.pair.where)

    @property
    def verdict(self) -> Verdict:
        """What is known of it."""
        return self.measure.verdict(self.contrast, self.until)

    @property
    def sign(self) -> int:
        """1 or -1 where it is beyond chance; of one repeat, where its value is."""
        return self.measure.sign(self.contrast)

    @property
    def gain(self) -> int:
        """1 where it is better beyond chance, -1 where it is worse."""
        return self.sign * self.measure.better

    @property
    def size(self) -> float:
        """How far it is from no difference."""
        return self.measure.size(self.contrast)

    @property
    def is_decided(self) -> bool:
        """Whether more repeats have no use."""
        null, until = self.measure.null, self.until
        return is_decided(self.contrast, null=null, precision=until.within, equivalent=until.equivalent)

    @property
    def is_rough(self) -> bool:
        """Whether it is decided, and yet hardly says by how much."""
        return is_rough(self.contrast, null=self.measure.null, precision=self.until.within)

    def repeats_wanted(self) -> int | None:
        """About how many repeats decide it: its interval is as narrow as is wanted, or excludes no difference.

        If its noise stays as it is; at most `_MOST_COUNTED`. None without an interval.
        """
        after = self.contrast.half_width_after
        if after is None:
            return None
        wanted = math.log1p(self.until.within) if self.measure.is_ratio else self.until.within
        width = max(wanted, self.size)
        counts = range(self.contrast.n + 1, _MOST_COUNTED)
        return counts.start + bisect.bisect_left(counts, -width, key=lambda count: -after(count))

    def as_dict(self) -> dict[str, Any]:
        """Its values for programs."""
        return {
            "metric": self.measure.metric,
            "kind": self.measure.kind,
            "pair": self.pair.label,
            "where": self.pair.where,
            "value": self.contrast.centre,
            "low": self.contrast.low,
            "high": self.contrast.high,
            "n": self.contrast.n,
            "verdict": self.verdict,
        }


Comparison = Sequence[Effect]
"""The effects of one pair, in the order of the measures: a row of the table."""


def pair_along(axis: Axis, group: Sequence[Row], row: Row, base: Row) -> Pair:
    """Two trials of a group of an axis."""
    label = f"{axis.noun} {axis.value(row)} vs {axis.value(base)}"
    return Pair(axis.name, label, axis.where(group), row, base)


def compare(pair: Pair, measures: Sequence[Measure], until: Until) -> list[Effect]:
    """The effects of a pair on the measures that both trials have, memory, and what goes along with them."""
    effects = []
    for measure in [*measures, *memory_of([pair.row, pair.base])]:
        contrast = measure.against(pair.row, pair.base)
        if contrast is not None:
            effects.append(Effect(pair, measure, contrast, until))
    return [*effects, *_settings(pair, until)]


def compare_mean(pairs: Sequence[Pair], measures: Sequence[Measure], until: Until) -> list[Effect]:
    """The mean effects of pairs of the same two values in several places; the first pair stands for all of them."""
    if len(pairs) == 1:
        return compare(pairs[0], measures, until)
    mean = replace(pairs[0], where=f"mean of {len(pairs)}")
    trials = [(pair.row, pair.base) for pair in pairs]
    rows = [row for both in trials for row in both]
    effects = []
    for measure in [*measures, *memory_of(rows)]:
        contrast = rows[0].comparisons.mean(trials, measure.metric, is_ratio=measure.is_ratio)
        if contrast is not None:
            effects.append(Effect(mean, measure, contrast, until))
    return [*effects, *_settings(mean, until)]


def level_of(metric: str, label: str, row: Row, value: Estimate | Interval, n: int) -> Effect:
    """A value of a trial that is compared with nothing."""
    contrast = Contrast(value.centre, value.low, value.high, n, None)
    return Effect(Pair("", label, "", row, row), Level(metric), contrast, Until())


def _settings(pair: Pair, until: Until) -> Iterator[Effect]:
    """What else differs between two trials: it is set, not measured, and has no chance in it."""
    n = min(len(pair.row.counted), len(pair.base.counted))
    for metric in _SETTINGS:
        value = next(iter(pair.row.by_block(metric).values()), 0)
        base = next(iter(pair.base.by_block(metric).values()), 0)
        if value and base:
            ratio = value / base
            yield Effect(pair, Setting(metric), Contrast(ratio, ratio, ratio, n, 0.0), until)
