"""`Measure`: a quantity by which trials are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dmls_ray.analysis.memory import MEMORY, hardly_differs, memory_metric
from dmls_ray.analysis.trials.compare import speed_metric
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.training_metrics import LEARNED, is_loss
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


_BETTER = {"max": 1, "min": -1, "none": 0}

MOST_MEASURES = 4
"""Measures of an answer: its table has few columns."""

_BEST_FIRST = ("test_accuracy", "test_loss", "validation_accuracy", "validation_loss", "train_accuracy", "train_loss")
"""What was learned, by how much it says of new samples."""


def speed(metric: str) -> Measure:
    """How fast runs go: by the throughput of their workload, or by runs per second."""
    return Measure(metric=metric, kind="speed", noun="speed", better=1)


def measure_of(metric: str, kind: Kind) -> Measure:
    """A metric as a measure, by its name and its entry in the registry."""
    noun = metric.replace("_", " ") if metric in LEARNED else metric
    return Measure(metric=metric, kind=kind, noun=noun, better=_BETTER[metric_direction(metric)])


def measures_of(trials: Sequence[Trial]) -> list[Measure]:
    """The measures by which an answer compares trials: speed or duration, what was learned, what a user reports."""
    measures: list[Measure] = []
    rated = [trial for trial in trials if trial.rates()]
    if rated:
        measures.append(speed(speed_metric(*rated)))
    elif any(trial.by_block("total_s") for trial in trials):
        measures.append(Measure(metric="total_s", kind="duration", noun="time", better=-1))
    learned = next((name for name in _BEST_FIRST if any(trial.by_block(name) for trial in trials)), None)
    if learned is not None:
        measures.append(measure_of(learned, "points" if learned.endswith("accuracy") else "ratio"))
    reported: dict[str, list[float]] = {}
    for trial in trials:
        for name in trial.estimates:
            if is_compared(name) and name != trial.throughput:
                reported.setdefault(name, []).extend(trial.by_block(name).values())
    for name, values in reported.items():
        # What is equal in all runs, as a number of tokens, compares nothing.
        if len(set(values)) > 1:
            measures.append(measure_of(name, "ratio" if min(values) > 0 else "difference"))
    return measures[:MOST_MEASURES]


def memory_of(trials: Sequence[Trial]) -> list[Measure]:
    """The measure of the memory of some trials; none where it was not measured."""
    metric = memory_metric(trials)
    sizes = [trial.estimates[metric].centre for trial in trials if metric in trial.estimates]
    if not sizes:
        return []
    negligible = hardly_differs(sizes, metric)
    return [
        Measure(metric=metric, kind="ratio", noun=MEMORY[metric], better=-1, is_judged=False, is_negligible=negligible)
    ]
