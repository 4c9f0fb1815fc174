"""`Measure`: a quantity by which an answer compares trials, and how its effects are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmls_ray.analysis.stats.block_model import Contrast, is_decided
from dmls_ray.analysis.stats.formatting import (
    GENERIC,
    RATIO,
    NumberFormat,
    format_interval,
    format_value,
    with_sign,
)
from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.table.comparisons import Comparisons
from dmls_ray.analysis.table.row import Row
from dmls_ray.config.until import Until
from dmls_ray.records.training_metrics import LEARNED, is_loss
from dmls_ray.workloads.registry import is_compared

_POINTS = with_sign(NumberFormat(lambda value: 1))


@dataclass(frozen=True)
class Measure:
    """A quantity of trials."""

    name: str
    """`speed`, or a metric."""
    kind: str
    """`ratio` of two values; `points`, hundredths between two accuracies; or `difference`."""

    @property
    def topic(self) -> str:
        """The first word of a line about it."""
        return {"test_accuracy": "accuracy", "total_s": "time"}.get(self.name, self.name)

    @property
    def noun(self) -> str:
        """What two trials are compared in: `speed`, `time`, `test accuracy`."""
        return self.topic if self in (SPEED, DURATION) else self.words

    @property
    def words(self) -> str:
        """Its name in a sentence."""
        return self.name.replace("_", " ") if self.name in LEARNED else self.name

    @property
    def null(self) -> float:
        """The value of a comparison that means no difference."""
        return 1.0 if self.kind == "ratio" else 0.0

    def is_of(self, row: Row) -> bool:
        """Whether a trial has it."""
        return bool(row.rates() if self.name == "speed" else row.by_block(self.name))

    def against(self, row: Row, base: Row, comparisons: Comparisons | None = None) -> Contrast | None:
        """A trial compared with a baseline; None without a block that has both in one environment.

        Args:
            row: the trial.
            base: the baseline.
            comparisons: how they compare, if otherwise than in their table.
        """
        comparisons = comparisons or row.comparisons
        if self.name == "speed":
            return comparisons.speed(row, base)
        compare = comparisons.ratio if self.kind == "ratio" else comparisons.difference
        return compare(row, base, self.name)

    def effect(self, contrast: Interval, *, interval: bool = True) -> str:
        """A comparison as it is written: `2.83x [2.26, 3.54]`, `-9.9 points [-15.9, -4.0]`."""
        unit, form = {"ratio": ("x", RATIO), "points": (" points", _POINTS)}.get(self.kind, ("", with_sign(GENERIC)))
        if self.kind == "points":
            low, high = (None if end is None else end * 100 for end in (contrast.low, contrast.high))
            contrast = replace(contrast, centre=contrast.centre * 100, low=low, high=high)
        write = format_interval if interval else format_value
        text = write(contrast, form, null=self.null)
        number, bracket, ends = text.partition(" [")
        return f"{number}{unit}{bracket}{ends}"

    def sign(self, contrast: Interval) -> int:
        """1 or -1 where a comparison is above or below no difference beyond chance, else 0.

        Without an interval, as of one repeat, where the value itself is.
        """
        low, high = (contrast.centre if end is None else end for end in (contrast.low, contrast.high))
        return (low > self.null) - (high < self.null)

    @property
    def is_result(self) -> bool:
        """Whether it is a loss or an accuracy: what a configuration is chosen for."""
        return is_loss(self.name) or self.name.endswith("accuracy")

    def goodness(self, row: Row) -> float:
        """The mean of a result, on a scale on which more is better."""
        value = row.value_of(self.name) or 0.0
        return -value if is_loss(self.name) else value

    def is_worse(self, contrast: Interval, by: float = 0.0) -> bool:
        """Whether a comparison is of more loss, or less accuracy, beyond chance.

        Without an interval, by the value itself.

        Args:
            contrast: the comparison.
            by: how much of it counts as none: 0.02 for 2% of a ratio, or for 0.02 of an accuracy.
        """
        low, high = (contrast.centre if end is None else end for end in (contrast.low, contrast.high))
        least, most = (1 / (1 + by), 1 + by) if self.kind == "ratio" else (-by, by)
        return self.is_result and (low > most if is_loss(self.name) else high < least)

    def size(self, contrast: Interval) -> float:
        """How far a comparison is from no difference."""
        return abs(math.log(contrast.centre)) if self.kind == "ratio" else abs(contrast.centre)

    def is_equal(self, contrast: Contrast, until: Until) -> bool:
        """Whether the interval of a comparison lies within what counts as no difference."""
        decided = is_decided(contrast, null=self.null, precision=0.0, equivalent=until.equivalent)
        return decided and not self.sign(contrast)

    def verdict(self, contrasts: Sequence[Contrast], until: Until) -> str:
        """What is said of comparisons of which none is beyond chance: `equal`, or `not distinguished`."""
        return "equal" if all(self.is_equal(contrast, until) for contrast in contrasts) else "not distinguished"


SPEED = Measure("speed", "ratio")
DURATION = Measure("total_s", "ratio")
MOST_MEASURES = 4
"""Measures of an answer: it has few lines."""

_BEST_FIRST = ("test_accuracy", "test_loss", "validation_accuracy", "validation_loss", "train_accuracy", "train_loss")
"""What was learned, by how much it says of new samples."""


def measures_of(rows: Sequence[Row]) -> list[Measure]:
    """The measures by which an answer compares trials: speed or duration, what was learned, what a user reports."""
    measures = []
    if any(row.rates() for row in rows):
        measures.append(SPEED)
    elif any(row.by_block("total_s") for row in rows):
        measures.append(DURATION)
    learned = next((name for name in _BEST_FIRST if any(row.by_block(name) for row in rows)), None)
    if learned is not None:
        measures.append(Measure(learned, "points" if learned.endswith("accuracy") else "ratio"))
    is_speed = {row.throughput for row in rows}
    reported = dict.fromkeys(name for row in rows for name in row.estimates if is_compared(name))
    for name in (name for name in reported if name not in is_speed):
        values = [value for row in rows for value in row.by_block(name).values()]
        if len(set(values)) > 1:  # what is equal in all runs, as a number of tokens, compares nothing
            measures.append(Measure(name, "ratio" if min(values) > 0 else "difference"))
    return measures[:MOST_MEASURES]
