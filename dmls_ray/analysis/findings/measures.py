"""`Measure`: a quantity by which trials are compared, and how its comparisons are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dmls_ray.analysis.memory import MEMORY, hardly_differs, memory_metric
from dmls_ray.analysis.stats.block_model import Contrast, is_decided
from dmls_ray.analysis.stats.formatting import GENERIC, RATIO, NumberFormat, format_interval, format_value, with_sign
from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.trials.compare import Comparisons, speed_metric
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.config.until import Until
from dmls_ray.records.training_metrics import LEARNED, is_loss
from dmls_ray.workloads.registry import is_compared, registered_metrics

Verdict = Literal["more", "less", "equal", "close", "open", "once", "level"]
"""more, less: beyond chance. equal: within what counts as no difference. close: known closely, and no difference beyond
chance. open: more repeats may decide it. once: the repeats repeat one run, so that no further one says more. level: it
is compared with nothing."""


@dataclass(frozen=True)
class Measure:
    """A quantity of trials. Subclasses say how two values compare."""

    metric: str

    kind: ClassVar[str]
    """Which words an effect has."""
    is_ratio: ClassVar[bool] = False
    unit: ClassVar[str] = ""
    scale: ClassVar[float] = 1.0
    """How many units of an effect are written for one of a value."""
    form: ClassVar[NumberFormat] = with_sign(GENERIC)
    is_judged: ClassVar[bool] = True
    """Whether a sweep is repeated until it is decided; else it goes along, and is shown where it differs."""
    is_outcome: ClassVar[bool] = True
    """Whether it follows from what was run; else it is a part of that."""

    @property
    def name(self) -> str:
        """Its identifier among the measures of an answer."""
        return self.metric

    @property
    def noun(self) -> str:
        """What two trials are compared in: `speed`, `test accuracy`."""
        return self.metric.replace("_", " ") if self.metric in LEARNED else self.metric

    @property
    def null(self) -> float:
        """The value of a comparison that means no difference."""
        return 1.0 if self.is_ratio else 0.0

    @property
    def is_result(self) -> bool:
        """Whether it is a loss or an accuracy: what a configuration is chosen for."""
        return is_loss(self.metric) or self.metric.endswith("accuracy")

    @property
    def better(self) -> int:
        """1 where more is better, -1 where less is, 0 where that is not known."""
        if self.is_result:
            return -1 if is_loss(self.metric) else 1
        metric = registered_metrics().get(self.metric)
        return 0 if metric is None else _BETTER[metric.direction]

    def is_of(self, row: Row) -> bool:
        """Whether a trial has it."""
        return bool(row.by_block(self.metric))

    def against(self, row: Row, base: Row, comparisons: Comparisons | None = None) -> Contrast | None:
        """A trial compared with a baseline; None without a block that has both in one environment.

        Args:
            row: the trial.
            base: the baseline.
            comparisons: how they compare, if otherwise than in their table.
        """
        return (comparisons or row.comparisons).against(row, base, self.metric, is_ratio=self.is_ratio)

    def text(self, contrast: Interval, *, interval: bool = True) -> str:
        """A comparison as it is written: `2.83x [2.26, 3.54]`, `-9.9 points [-15.9, -4.0]`."""
        low, high = contrast.low, contrast.high
        if low is not None and high is not None:
            low, high = low * self.scale, high * self.scale
        scaled = replace(contrast, centre=contrast.centre * self.scale, low=low, high=high)
        write = format_interval if interval else format_value
        number, bracket, rest = write(scaled, self.form, null=self.null).partition(" [")
        return f"{number}{self.unit}{bracket}{rest}"

    def sign(self, contrast: Interval) -> int:
        """1 or -1 where a comparison is above or below no difference beyond chance, else 0.

        Without an interval, as of one repeat, where the value itself is.
        """
        low, high = _ends(contrast)
        return (low > self.null) - (high < self.null)

    def size(self, contrast: Interval) -> float:
        """How far a comparison is from no difference."""
        return abs(math.log(contrast.centre)) if self.is_ratio else abs(contrast.centre)

    def goodness(self, row: Row) -> float:
        """The mean of a result, on a scale on which more is better."""
        return self.better * (row.value_of(self.metric) or 0.0)

    def is_worse(self, contrast: Interval, by: float = 0.0) -> bool:
        """Whether a result is a higher loss, or a lower accuracy, by more than so much and beyond chance.

        Args:
            contrast: the comparison.
            by: 0.02 for 2% of a ratio, or for 0.02 of an accuracy.
        """
        low, high = _ends(contrast)
        if self.better < 0:
            return low > (1 + by if self.is_ratio else by)
        return high < (1 / (1 + by) if self.is_ratio else -by)

    def is_equal(self, contrast: Contrast, until: Until) -> bool:
        """Whether the interval of a comparison lies within what counts as no difference."""
        decided = is_decided(contrast, null=self.null, precision=0.0, equivalent=until.equivalent)
        return decided and not self.sign(contrast)

    def verdict(self, contrast: Contrast, until: Until) -> Verdict:
        """What is known of a comparison."""
        if contrast.is_once:
            return "once"
        if contrast.low is None:
            return "open"
        sign = self.sign(contrast)
        if sign:
            return "more" if sign > 0 else "less"
        if self.is_equal(contrast, until):
            return "equal"
        is_close = is_decided(contrast, null=self.null, precision=until.within, equivalent=until.equivalent)
        return "close" if is_close else "open"


def _ends(contrast: Interval) -> tuple[float, float]:
    if contrast.low is None or contrast.high is None:
        return contrast.centre, contrast.centre
    return contrast.low, contrast.high


class Difference(Measure):
    """Values of any sign, of which one is subtracted from the other."""

    kind = "difference"


class Points(Measure):
    """Shares, as accuracies, whose differences are written in hundredths."""

    kind = "points"
    unit = " points"
    scale = 100.0
    form = with_sign(NumberFormat(lambda value: 1))


class Ratio(Measure):
    """Values above 0, of which one is divided by the other."""

    kind = "ratio"
    is_ratio = True
    unit = "x"
    form = RATIO


class Speed(Ratio):
    """How fast runs go: by the throughput of their workload, or by runs per second."""

    kind = "speed"
    name = "speed"
    noun = "speed"
    better = 1


class Duration(Ratio):
    """How long runs take, where they may differ in their work."""

    kind = "duration"
    noun = "time"
    better = -1


class Setting(Ratio):
    """What was set, as the number of optimizer steps: it explains results and is none."""

    is_outcome = False
    is_judged = False
    better = 0


class Level(Measure):
    """Values of a trial that are compared with nothing."""

    kind = "level"
    form = GENERIC

    def verdict(self, contrast: Contrast, until: Until) -> Verdict:
        return "level"


@dataclass(frozen=True)
class MemorySize(Ratio):
    """A size of memory, of which a small difference is of no use, however sure it is."""

    sizes: tuple[float, ...]
    """MiB of the trials that are compared."""

    better = -1
    is_judged = False

    @property
    def noun(self) -> str:
        return MEMORY[self.metric]

    def verdict(self, contrast: Contrast, until: Until) -> Verdict:
        if hardly_differs(self.sizes, self.metric):
            return "equal"
        return super().verdict(contrast, until)


_BETTER = {"max": 1, "min": -1, "none": 0}

MOST_MEASURES = 4
"""Measures of an answer: its table has few columns."""

_BEST_FIRST = ("test_accuracy", "test_loss", "validation_accuracy", "validation_loss", "train_accuracy", "train_loss")
"""What was learned, by how much it says of new samples."""


def measures_of(rows: Sequence[Row]) -> list[Measure]:
    """The measures by which an answer compares trials: speed or duration, what was learned, what a user reports."""
    measures: list[Measure] = []
    rated = [row for row in rows if row.rates()]
    if rated:
        measures.append(Speed(speed_metric(*rated)))
    elif any(row.by_block("total_s") for row in rows):
        measures.append(Duration("total_s"))
    learned = next((name for name in _BEST_FIRST if any(row.by_block(name) for row in rows)), None)
    if learned is not None:
        measures.append(Points(learned) if learned.endswith("accuracy") else Ratio(learned))
    throughputs = {row.throughput for row in rows}
    for name in dict.fromkeys(name for row in rows for name in row.estimates if is_compared(name)):
        values = [value for row in rows for value in row.by_block(name).values()]
        # What is equal in all runs, as a number of tokens, compares nothing.
        if name not in throughputs and len(set(values)) > 1:
            measures.append(Ratio(name) if min(values) > 0 else Difference(name))
    return measures[:MOST_MEASURES]


def memory_of(rows: Sequence[Row]) -> list[MemorySize]:
    """The measure of the memory of some trials; none where it was not measured."""
    metric = memory_metric(rows)
    sizes = [row.estimates[metric].centre for row in rows if metric in row.estimates]
    return [MemorySize(metric, tuple(sizes))] if sizes else []
