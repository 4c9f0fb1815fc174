"""`Objective`: what a configuration is chosen for, and how good each configuration of a sweep is at it.

Each module of `advise/objectives/` has one subclass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, Self

from dmls_ray.analysis.metrics import format_of, is_time, label_of, quantity_of
from dmls_ray.analysis.stats.formatting import RATIO, NumberFormat, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import Estimate, Interval, compare, difference, estimate
from dmls_ray.analysis.stats.paired import logarithm_of, ratio_of
from dmls_ray.analysis.stats.time_to_target import time_to_target
from dmls_ray.analysis.summary.phrases import describe_configuration
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import metric_is_minimized

TIME_TO_TARGET = "target_s"
"""The measure of an objective that is judged by the time to a target accuracy."""


class UnableReason(Enum):
    """Why a configuration cannot be chosen."""

    OUTCOME = "its runs did not end ok"
    NO_TIMES = "its runs shared the machine in a search"
    TIMES_UNKNOWN = "the times of its epochs are not recorded"
    NO_METRIC = "it does not report the metric"
    BELOW_TARGET = "its accuracy is below the target"
    TARGET_NOT_REACHED = "fewer than half of its runs reached the target"


@dataclass(frozen=True)
class Unable:
    """Why one configuration cannot be chosen, with the text of its table cell."""

    reason: UnableReason
    text: str


_SEARCHED = Unable(UnableReason.NO_TIMES, "searched: no times")
_TIMES_UNKNOWN = Unable(UnableReason.TIMES_UNKNOWN, "times of its epochs not known")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `dmls-ray advise` is given besides the objective."""

    target: float | None = None
    """Test accuracy to be reached."""
    price_per_hour: float | None = None
    """Price of one rank."""
    metric: str | None = None
    minimizes: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What a configuration is chosen for. A subclass sets `name`, `metric` and the class variables that differ."""

    name: ClassVar[str]
    """After `--for`."""
    needs_times: ClassVar[bool] = False
    """Whether runs of a search, which shared the machine, say nothing of it."""
    as_ratio: ClassVar[bool] = True
    """Whether configurations are compared by a ratio; else by a difference."""
    takes_target: ClassVar[bool] = True
    takes_price: ClassVar[bool] = False
    takes_metric: ClassVar[bool] = False
    depends_on_machine: ClassVar[bool] = True
    """Whether drift between sessions and oversubscribed cores affect it."""
    work_matters: ClassVar[bool] = False
    """Whether a configuration that does less work looks better."""
    ranks_may_help: ClassVar[bool] = False
    """Whether more ranks may be better."""
    follows_learning_rate: ClassVar[bool] = True
    """Whether scaling the learning rate with the batch may be better."""

    measure: str
    """The metric, or `TIME_TO_TARGET`."""
    label: str
    """Its heading, with the unit."""
    form: NumberFormat
    minimizes: bool
    target: float | None = None
    """Test accuracy to be reached."""
    price_per_hour: float | None = None
    """Price of one rank."""

    @classmethod
    def metric(cls, table: Table, request: Request) -> str:
        """The metric by which the configurations of a table are judged."""
        raise NotImplementedError

    @classmethod
    def settle(cls, table: Table, request: Request) -> Self:
        """The objective as the runs of a table can be judged by it.

        Raises:
            ConfigError: the runs do not report what it needs.
        """
        if request.target is not None:
            target_of(table, request.target)
        name = cls.metric(table, request)
        if not any(row.estimate(name) for row in table.rows):
            raise ConfigError(f"--for {cls.name} needs {name}, which no run reports; give another --for.")
        least = request.minimizes if request.minimizes is not None else metric_is_minimized(name)
        return cls(measure=name, label=label_of(name), form=format_of(name), minimizes=least, target=request.target)

    def caveats(self) -> list[str]:
        """What results cannot say to this objective, whatever the runs."""
        return []

    def badness(self, value: float) -> float:
        """A value on a scale on which less is better and differences count: its logarithm where ratios do."""
        scaled = math.log(value) if self.as_ratio else value
        return scaled if self.minimizes else -scaled

    def compared(self, candidate: Candidate, baseline: Candidate, level: float = 0.95) -> Interval | None:
        """By how much a candidate is worse than a baseline, on the scale of `badness`.

        Samples are paired by block; of times only blocks in which both ran on one machine and device count. None
        without any. At the same level it is the interval of the sweep's summary.
        """
        samples, baseline_samples = self.paired_samples(candidate, baseline)
        if not self.as_ratio:
            worse = difference(samples, baseline_samples, level=level)
            return Interval(worse.centre, worse.low, worse.high) if worse else None
        sides = ({block: math.exp(value) for block, value in side.items()} for side in (samples, baseline_samples))
        times = compare(*sides, level=level)
        return logarithm_of(times.ratio) if times else None

    def paired_samples(self, candidate: Candidate, baseline: Candidate) -> tuple[dict[int, float], dict[int, float]]:
        """The samples of both, of the blocks that can be compared."""
        blocks = candidate.samples.keys() & baseline.samples.keys()
        if is_time(self.measure) or self.measure == TIME_TO_TARGET:
            blocks &= candidate.row.blocks_on_same_hardware(baseline.row)
        samples, baseline_samples = (
            {block: item.samples[block] for block in sorted(blocks)} for item in (candidate, baseline)
        )
        return samples, baseline_samples

    def inverse(self, worse: Interval) -> Interval:
        """By how much the baseline is worse than the candidate."""
        low, high = (None if end is None else -end for end in (worse.high, worse.low))
        return Interval(-worse.centre, low, high)

    def describe(self, worse: Interval) -> str:
        """What the candidate has relative to the baseline: `1.20 times the images/s`, `+0.010 test acc.`."""
        turned = worse if self.minimizes else self.inverse(worse)
        if self.as_ratio:
            return f"{format_interval(ratio_of(turned), RATIO)} times the {self.label}"
        return f"{format_interval(turned, with_sign(self.form))} {self.label}"


@dataclass(frozen=True)
class Candidate:
    """A configuration that was measured, and how good it is."""

    row: Row
    value: Estimate | Interval
    text: str
    """Its value with its interval."""
    samples: dict[int, float]
    """By block, on the scale of `Objective.badness`; for a run that did not reach its target, a lower bound."""
    is_whole: bool = True
    """Whether every run reached the target."""

    @property
    def name(self) -> str:
        return describe_configuration(self.row.factors)


def settle(kind: type[Objective], table: Table, request: Request) -> Objective:
    """An objective of this kind, as the runs of a sweep can be judged by it.

    Raises:
        ConfigError: the objective lacks something, is given something that has no meaning for it, or the runs do not
            report what it needs.
    """
    _check(kind, request)
    ok = [record for row in table.rows for record in row.counted]
    if not ok:
        raise ConfigError("no run ended ok, so there is nothing to choose from; see the reasons in its table.md.")
    if kind.needs_times and all(record.mode == "search" for record in ok):
        raise ConfigError(
            f"--for {kind.name} needs times, and these runs went side by side in a search, whose times say nothing. "
            "Give --for accuracy, or measure the configurations again with --mode bench."
        )
    return kind.settle(table, request)


def candidates(table: Table, objective: Objective) -> tuple[list[Candidate], list[tuple[Row, Unable]]]:
    """The configurations that can be chosen, the best first, and the others with the reason why not."""
    able: list[Candidate] = []
    unable: list[tuple[Row, Unable]] = []
    for row in table.rows:
        by_time = objective.measure == TIME_TO_TARGET
        judged = _by_time_to_target(row, objective) if by_time else _by_metric(row, objective)
        if isinstance(judged, Candidate):
            able.append(judged)
        else:
            unable.append((row, judged))
    able.sort(key=lambda item: objective.badness(item.value.centre))
    return able, unable


def _check(kind: type[Objective], request: Request) -> None:
    target, price, metric = request.target, request.price_per_hour, request.metric
    if target is not None and not 0 < target <= 1:
        raise ConfigError(f"--target-accuracy {target:g} is out of range; give more than 0 and at most 1.")
    if target is not None and not kind.takes_target:
        raise ConfigError(f"--target-accuracy {target:g} means nothing for --for {kind.name}; leave it out.")
    if price is None and kind.takes_price:
        raise ConfigError(f"--for {kind.name} needs what a rank costs an hour; give --price-per-hour 2.5, say.")
    if price is not None and not kind.takes_price:
        raise ConfigError(f"--price-per-hour {price:g} means nothing for --for {kind.name}; leave it out.")
    if price is not None and not 0 < price < math.inf:
        raise ConfigError(f"--price-per-hour {price:g} is out of range; give more than 0.")
    if metric is not None and not kind.takes_metric:
        raise ConfigError(
            f"--metric {metric} means nothing for --for {kind.name}; leave it out, or give --for accuracy."
        )
    if request.minimizes is not None and not kind.takes_metric:
        given = "min" if request.minimizes else "max"
        raise ConfigError(f"--goal {given} means nothing for --for {kind.name}; leave it out, or give --for accuracy.")


def target_of(table: Table, target: float | None) -> float:
    """The test accuracy to be reached: the given one, else that of the runs.

    Raises:
        ConfigError: no run reports a test accuracy, or neither has a target.
    """
    rows = [row for row in table.rows if row.median_of("test_accuracy") is not None]
    if not rows:
        raise ConfigError("--target-accuracy needs test accuracies, and no run reports one; give --for throughput.")
    if target is not None:
        return target
    targets = {record.config.get("target_accuracy") for row in rows for record in row.records}
    if len(targets) == 1 and (known := targets.pop()) is not None:
        return float(known)
    highest = max(row.median_of("test_accuracy") or 0.0 for row in rows)
    why = "the runs have none" if targets <= {None} else "the runs have several"
    raise ConfigError(
        f"--for time-to-accuracy needs a target, and {why}; give --target-accuracy (the highest test accuracy is "
        f"{highest:.3f})."
    )


def _by_metric(row: Row, objective: Objective) -> Candidate | Unable:
    """A configuration by a measure of its runs, or why it cannot be judged by it."""
    values = row.by_block(objective.measure)
    if not row.counted:
        return Unable(UnableReason.OUTCOME, row.outcome)
    if objective.as_ratio:
        values = {block: value for block, value in values.items() if value > 0}
    if not values:
        searched = is_time(objective.measure) and all(record.mode == "search" for record in row.counted)
        return _SEARCHED if searched else Unable(UnableReason.NO_METRIC, f"no {objective.measure}")
    reached = row.median_of("test_accuracy")
    if objective.target is not None and (reached is None or reached < objective.target):
        known = "test accuracy not known" if reached is None else f"test accuracy {reached:.3f}"
        return Unable(UnableReason.BELOW_TARGET, known)
    if objective.price_per_hour is not None:
        values = {block: value * _price(row, objective.price_per_hour) for block, value in values.items()}
    quantity = "amount" if objective.price_per_hour is not None else quantity_of(objective.measure)
    value = estimate(list(values.values()), quantity)
    return Candidate(
        row,
        value,
        format_interval(value, objective.form),
        {key: objective.badness(each) for key, each in values.items()},
    )


def _by_time_to_target(row: Row, objective: Objective) -> Candidate | Unable:
    """A configuration by when its runs reached the target, or why it cannot be judged by it."""
    reached = time_to_target(row.records, objective.target)
    if reached is None and not row.timed:
        return _SEARCHED if row.counted else Unable(UnableReason.OUTCOME, row.outcome)
    if reached is None:
        return _TIMES_UNKNOWN
    # The estimate may be known where fewer have: such a configuration is not one to count on.
    if reached.median is None or 2 * reached.reached < reached.n:
        return Unable(UnableReason.TARGET_NOT_REACHED, f"not yet ({reached.reached} of {reached.n})")
    if reached.median <= 0:
        return _TIMES_UNKNOWN
    factor = 1.0 if objective.price_per_hour is None else _price(row, objective.price_per_hour)
    median, low, high = (None if end is None else end * factor for end in (reached.median, reached.low, reached.high))
    assert median is not None
    samples: dict[int, float] = {}
    for record in row.records:
        alone = time_to_target([record], objective.target)
        # A run that has not got there took longer than it lasted.
        taken = None if alone is None else alone.median or record.total_s
        if taken:
            samples[record.repeat] = objective.badness(taken * factor)
    text = replace(reached, median=median, low=low, high=high).describe(objective.form)
    return Candidate(row, Interval(median, low, high), text, samples, reached.reached == reached.n)


def _price(row: Row, per_hour: float) -> float:
    """What a second of all ranks costs."""
    return row.world_size * per_hour / 3600
