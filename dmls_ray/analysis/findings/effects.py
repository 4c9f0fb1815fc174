"""`Effect`: what a change of a field does to a metric, as numbers with a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.analysis.findings.claims import Claim, Pair, pair_along
from dmls_ray.analysis.findings.measures import Measure, Setting, Verdict
from dmls_ray.analysis.findings.memory import memory_of
from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.trials.axis import Axis
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.config.until import Until

_SETTINGS = ("steps", "scaled_lr")
"""What differs along with a field and explains an accuracy: optimizer steps, and the learning rate that was used."""
_FEWEST_OF_TREND = 3
"""Values that make a trend; two have a ratio."""
_REFUTED = 0.2
"""Level of the test of a line's fit. Few blocks show a curve badly, and steps are right where a line fits, too."""


@dataclass(frozen=True)
class Effect:
    """A trial, or the mean of several, against another one by one measure."""

    measure: Measure
    pair: Pair
    where: str
    """The place of the pair, or of how many the mean is: `2 ranks`, `mean of 4`."""
    value: float
    """The ratio or the difference."""
    low: float | None
    high: float | None
    n: int
    """Number of blocks."""
    verdict: Verdict

    @property
    def key(self) -> tuple[str, str]:
        """The row of the table that it is in."""
        return (self.pair.label, self.where)

    @property
    def interval(self) -> Interval:
        """The value with its interval."""
        return Interval(self.value, self.low, self.high)

    @property
    def sign(self) -> int:
        """1 or -1 where it is beyond chance; of one repeat, where its value is."""
        return self.measure.sign(self.interval)

    @property
    def is_better(self) -> bool:
        """Whether it is a gain, beyond chance."""
        return self.sign * self.measure.better > 0

    @property
    def is_worse(self) -> bool:
        """Whether it is a loss, beyond chance."""
        return self.sign * self.measure.better < 0

    @property
    def size(self) -> float:
        """How far it is from no difference."""
        return self.measure.size(self.interval)

    def as_dict(self) -> dict[str, Any]:
        """Its values for programs."""
        return {
            "metric": self.measure.metric,
            "kind": self.measure.kind,
            "pair": self.pair.label,
            "where": self.where,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "n": self.n,
            "verdict": self.verdict,
        }


Comparison = Sequence[Effect]
"""The effects of one pair, in the order of the measures: a row of the table."""


def effect_of(claim: Claim, until: Until) -> Effect:
    """The effect that a claim is about."""
    return _effect(claim.measure, claim.pair, claim.pair.where, claim.contrast, until)


def comparison_of(pair: Pair, measures: Sequence[Measure], until: Until) -> list[Effect]:
    """The effects of a pair on all measures that both trials have, and on what goes along with them."""
    return comparison_of_mean([pair], measures, until)


def comparison_of_mean(pairs: Sequence[Pair], measures: Sequence[Measure], until: Until) -> list[Effect]:
    """The mean effects of pairs of the same two values in several places.

    Args:
        pairs: the pairs; the first one stands for all of them.
        measures: the most important first.
        until: says which differences count as none.
    """
    first = pairs[0]
    where = first.where if len(pairs) == 1 else f"mean of {len(pairs)}"
    found = []
    rows = [row for pair in pairs for row in (pair.row, pair.base)]
    for measure in [*measures, *memory_of(rows)]:
        contrast = _contrast(measure, pairs)
        if contrast is not None:
            found.append(_effect(measure, first, where, contrast, until))
    return [*found, *_settings(first, where)]


def trend_of(axis: Axis, group: Sequence[Row], measures: Sequence[Measure], until: Until) -> list[Effect]:
    """The factors per doubling of a group's field; empty unless lines fit all ratios that have one.

    Args:
        axis: a field of numbers.
        group: trials that differ in it alone.
        measures: what is compared; differences have no line.
        until: says which differences count as none.
    """
    values = [row.factors[axis.name] for row in group]
    if len(values) < _FEWEST_OF_TREND or min(values) <= 0 or max(values) < 2 * min(values):
        return []  # a factor per doubling would be extrapolated
    pair = Pair(axis.name, f"{axis.noun} x2", axis.where(group), group[-1], group[0])
    places = [math.log2(value) for value in values]
    found = []
    for measure in measures:
        line = measure.line(group, places) if measure.is_ratio else None
        if line is None:
            continue
        slope, fit = line
        if fit is None or fit < _REFUTED:
            return []
        found.append(_effect(measure, pair, pair.where, slope, until))
    return found


def steps_of(axis: Axis, group: Sequence[Row], measures: Sequence[Measure], until: Until) -> Iterator[list[Effect]]:
    """The steps of a group of numbers: the trend, or the first and the last step where no line fits."""
    if len(group) < _FEWEST_OF_TREND:
        return
    trend = trend_of(axis, group, measures, until)
    if trend:
        yield trend
        return
    for row, base in ((group[1], group[0]), (group[-1], group[-2])):
        yield comparison_of(pair_along(axis, group, row, base), measures, until)


def _effect(measure: Measure, pair: Pair, where: str, contrast: Contrast, until: Until) -> Effect:
    verdict = measure.verdict(contrast, until)
    return Effect(measure, pair, where, contrast.centre, contrast.low, contrast.high, contrast.n, verdict)


def _contrast(measure: Measure, pairs: Sequence[Pair]) -> Contrast | None:
    if len(pairs) == 1:
        return measure.against(pairs[0].row, pairs[0].base)
    return measure.mean([(pair.row, pair.base) for pair in pairs])


def _settings(pair: Pair, where: str) -> Iterator[Effect]:
    """What else differs between two trials: it is set, not measured, and has no chance in it."""
    n = min(len(pair.row.counted), len(pair.base.counted))
    for metric in _SETTINGS:
        value, base = _set_value(pair.row, metric), _set_value(pair.base, metric)
        if not value or not base:
            continue
        ratio = value / base
        verdict: Verdict = "equal"
        if ratio != 1:
            verdict = "more" if ratio > 1 else "less"
        yield Effect(Setting(metric), pair, where, ratio, ratio, ratio, n, verdict)


def _set_value(row: Row, metric: str) -> float | None:
    return next(iter(row.by_block(metric).values()), None)
