"""`Measure`: a quantity by which trials are compared, and which of them an answer has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dmls_ray.analysis.metrics import MEMORY_METRICS, hardly_differs, table_metrics
from dmls_ray.analysis.results import field_names
from dmls_ray.analysis.trials.axis import count_values
from dmls_ray.analysis.trials.common_metrics import durations_of, memory_metric, speed_metric
from dmls_ray.analysis.trials.run_lengths import STEP_MS
from dmls_ray.analysis.trials.trial import Trial
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
