"""`Objective`: what a configuration is chosen for, and how good each configuration of a sweep is at it.

Each module of `advise/objectives/` has one subclass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from dmls_ray.analysis.advise.target import target_of
from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import format_of, is_time, label_of, limit_of, quantity_of, resolution_of
from dmls_ray.analysis.stats.block_model import BlockModel
from dmls_ray.analysis.stats.formatting import RATIO, NumberFormat, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import Estimate, Interval, estimate
from dmls_ray.analysis.stats.looks import Looks
from dmls_ray.analysis.stats.time_to_target import time_to_target
from dmls_ray.analysis.summary.losers import Loser, losers_of
from dmls_ray.analysis.summary.phrases import describe_configuration
from dmls_ray.analysis.table.comparisons import Comparisons
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import metric_direction

TIME_TO_TARGET = "target_s"
"""The measure of an objective that is judged by the time to a target accuracy."""


@dataclass(frozen=True)
class Unable:
    """Why a configuration cannot be chosen."""

    text: str
    """Text of its table cell."""
    kind: Literal["times_unknown", "target_not_reached", "independent_ranks", "loses", "other"] = "other"
    loser: Loser | None = None
    """What it loses, of the kind `loses`."""


_SEARCHED = Unable("searched: no times")
_INDEPENDENT = Unable("independent ranks", "independent_ranks")
_TIMES_UNKNOWN = Unable("times of its epochs not known", "times_unknown")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `dmls-ray advise` besides the objective."""

    target: float | None = None
    """Test accuracy to be reached."""
    price_per_hour: float | None = None
    """Price of one rank."""
    metric: str | None = None
    minimizes: bool | None = None
    batch: int | None = None
    """Batch whose memory is estimated."""
    any_accuracy: bool = False
    """Whether a configuration may lose accuracy."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What a configuration is chosen for. A subclass sets `name`, `metric` and the class variables that differ."""

    name: ClassVar[str]
    """After `--for`."""
    needs_times: ClassVar[bool] = False
    """Whether it needs times, which runs of a search do not have: they share the machine."""
    is_learned: ClassVar[bool] = False
    """Whether it is a result of training: compared by a difference in place of a ratio, of any metric, without a target
    accuracy, and affected neither by drift between sessions nor by oversubscribed cores."""
    takes_price: ClassVar[bool] = False
    takes_batch: ClassVar[bool] = False
    """Whether it estimates batches that were not run."""
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
        minimizes = request.minimizes
        if minimizes is None and table.best_by is not None and name == table.best_by[0]:
            minimizes = table.best_by[1]
        direction = metric_direction(name) if minimizes is None else "min" if minimizes else "max"
        if direction == "none":
            raise ConfigError(f"--metric {name}: more or less may be better; add --goal max or --goal min.")
        least = direction == "min"
        return cls(measure=name, label=label_of(name), form=format_of(name), minimizes=least, target=request.target)

    @property
    def is_exact(self) -> bool:
        """Whether the metric is the same in every repeat, so that one run decides."""
        return self.measure in EXACT

    def caveats(self) -> list[str]:
        """What no results say about this objective."""
        return []

    def counts(self, value: float) -> bool:
        """Whether a value can be judged: of ratios, one above 0."""
        return self.is_learned or value > 0

    def badness(self, value: float) -> float:
        """A value on a scale on which less is better and differences count: its logarithm where ratios do."""
        scaled = value if self.is_learned else math.log(value)
        return scaled if self.minimizes else -scaled

    def model(self, table: Table, candidates: Sequence[Candidate], *, looks: Looks | None = None) -> BlockModel:
        """How these candidates compare, on the scale of `badness`, among all trials of their table.

        Trials that cannot be chosen were measured as well: intervals are those of the table.

        Args:
            table: the trials.
            candidates: those that are compared.
            looks: how their number of blocks came about, if otherwise than for all comparisons.
        """
        rows = [candidate.row for candidate in candidates]
        samples = {candidate.row.trial_id: candidate.samples for candidate in candidates}
        if self.measure != TIME_TO_TARGET:
            rows, samples = table.rows, {row.trial_id: self.samples(row) for row in table.rows if self.samples(row)}
        comparisons = rows[0].comparisons if rows else Comparisons(rows)
        return comparisons.model_of(
            samples,
            timed=self._is_timed,
            is_ratio=False,  # the scale has logarithms where ratios count
            resolution=resolution_of(self.measure, (record for row in rows for record in row.counted)),
            is_exact=self.is_exact,
            looks=looks,
            limit=limit_of(self.measure, [value for row in rows for value in row.by_block(self.measure).values()]),
            once=[row.trial_id for row in rows if row.is_once(self.measure)],
        )

    def samples(self, row: Row) -> dict[int, float]:
        """The metric of each block of a trial, on the scale of `badness`."""
        price = self.price_per_second(row)
        values = row.by_block(self.measure)
        return {block: self.badness(value * price) for block, value in values.items() if self.counts(value)}

    def compared(self, candidate: Candidate, baseline: Candidate, model: BlockModel) -> Interval | None:
        """By how much a candidate is worse than a baseline, on the scale of `badness`; None without common blocks."""
        return model.against(candidate.row.trial_id, baseline.row.trial_id)

    def differences(self, candidate: Candidate, baseline: Candidate) -> list[float]:
        """By how much a candidate is worse in each common block, on the scale of `badness`."""
        comparable = candidate.row.comparisons.common_blocks(candidate.row, baseline.row, timed=self._is_timed)
        blocks = comparable & candidate.samples.keys() & baseline.samples.keys()
        return [candidate.samples[block] - baseline.samples[block] for block in sorted(blocks)]

    @property
    def _is_timed(self) -> bool:
        return is_time(self.measure) or self.measure == TIME_TO_TARGET

    def describe_advantage(self, worse: Interval) -> str:
        """What a baseline has relative to a candidate that is worse by so much: `1.20 times the images/s`."""
        difference = self._as_shown(worse, is_mirrored=self.minimizes)
        return f"{difference} {self.label}" if self.is_learned else f"{difference} times the {self.label}"

    def describe_against(self, worse: Interval) -> str:
        """What a candidate that is worse by so much has relative to the best: `0.92 [0.81, 1.05]`, `-0.111 [...]`."""
        return self._as_shown(worse, is_mirrored=not self.minimizes)

    def _as_shown(self, worse: Interval, *, is_mirrored: bool) -> str:
        """A difference on the scale of `badness`, or its negative, as the difference or ratio that readers see."""
        if is_mirrored:
            low, high = (None if end is None else -end for end in (worse.high, worse.low))
            worse = Interval(-worse.centre, low, high)
        if self.is_learned:
            return format_interval(worse, with_sign(self.form), null=0)
        low, high = (None if end is None else math.exp(min(end, 700.0)) for end in (worse.low, worse.high))
        return format_interval(Interval(math.exp(worse.centre), low, high), RATIO, null=1)

    def price_per_second(self, row: Row) -> float:
        """What a second of all ranks of a trial costs; 1 where the price does not matter."""
        return 1.0 if self.price_per_hour is None else row.world_size * self.price_per_hour / 3600


@dataclass(frozen=True)
class Candidate:
    """A configuration with its value of the objective."""

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
    target, price = request.target, request.price_per_hour
    if target is not None and not 0 < target <= 1:
        raise ConfigError(f"--target-accuracy {target:g} is out of range; give more than 0 and at most 1.")
    if price is None and kind.takes_price:
        raise ConfigError(f"--for {kind.name} needs what a rank costs an hour; give --price-per-hour 2.5, say.")
    if price is not None and kind.takes_price and not 0 < price < math.inf:
        raise ConfigError(f"--price-per-hour {price:g} is out of range; give more than 0.")

    if request.batch is not None and request.batch < 1:
        raise ConfigError(f"--batch {request.batch} is out of range; give 1 or more.")

    goal = None if request.minimizes is None else "min" if request.minimizes else "max"
    for flag, given, has_meaning, instead in (
        ("--target-accuracy", target, not kind.is_learned, ""),
        ("--price-per-hour", price, kind.takes_price, ""),
        ("--batch", request.batch, kind.takes_batch, ", or give --for memory"),
        ("--metric", request.metric, kind.is_learned, ", or give --for accuracy"),
        ("--goal", goal, kind.is_learned, ", or give --for accuracy"),
        ("--any-accuracy", "" if request.any_accuracy else None, not kind.is_learned, ""),
    ):
        if given is not None and not has_meaning:
            text = given if isinstance(given, str) else f"{given:g}"
            given_flag = f"{flag} {text}".rstrip()
            raise ConfigError(f"{given_flag} means nothing for --for {kind.name}; leave it out{instead}.")

    if not any(row.counted for row in table.rows):
        raise ConfigError("no run ended ok, so there is nothing to choose from; see the reasons in its table.md.")
    if kind.needs_times and not any(row.timed for row in table.rows):
        raise ConfigError(
            f"--for {kind.name} needs times, and these runs went side by side in a search, whose times say nothing. "
            "Give --for accuracy, or measure the configurations again with --mode bench."
        )
    return kind.settle(table, request)


def candidates(
    table: Table, objective: Objective, *, any_accuracy: bool = False, comparisons: Comparisons | None = None
) -> tuple[list[Candidate], list[tuple[Row, Unable]]]:
    """The configurations that can be chosen, the best first, and the others, each with the reason.

    Args:
        table: the trials.
        objective: what they are chosen for.
        any_accuracy: whether one may be chosen that loses accuracy, where no target says what it must come to.
        comparisons: how the accuracies compare, if otherwise than in the table.
    """
    judge = _by_time_to_target if objective.measure == TIME_TO_TARGET else _by_metric
    judged = [(row, _INDEPENDENT if row.independent_ranks else judge(row, objective)) for row in table.rows]
    able = [item for _, item in judged if isinstance(item, Candidate)]
    unable = [(row, item) for row, item in judged if isinstance(item, Unable)]
    if not (any_accuracy or objective.is_learned or objective.target is not None):
        losers = losers_of(table, [item.row for item in able], comparisons)
        able = [item for item in able if item.row.trial_id not in losers]
        unable += [(loser.row, Unable(loser.level, "loses", loser)) for loser in losers.values()]
    return sorted(able, key=lambda item: objective.badness(item.value.centre)), unable


def _by_metric(row: Row, objective: Objective) -> Candidate | Unable:
    """A configuration with its value of a metric, or why it has none."""
    if not row.counted:
        return Unable(row.outcome)
    if objective.is_learned and row.is_stopped:
        return Unable("stopped early")
    values = row.by_block(objective.measure)
    values = {block: value for block, value in values.items() if objective.counts(value)}
    if not values:
        return _SEARCHED if is_time(objective.measure) and not row.timed else Unable(f"no {objective.measure}")
    reached = row.value_of("test_accuracy")
    if objective.target is not None and (reached is None or reached < objective.target):
        return Unable("test accuracy not known" if reached is None else f"test accuracy {reached:.3f}")
    price = objective.price_per_second(row)
    resolution = resolution_of(objective.measure, row.counted)
    value = estimate(
        [value * price for value in values.values()],
        quantity_of(objective.measure, values.values()),
        resolution=resolution,
        is_exact=objective.is_exact,
        is_once=row.is_once(objective.measure),
    )
    return Candidate(row, value, format_interval(value, objective.form), objective.samples(row))


def _by_time_to_target(row: Row, objective: Objective) -> Candidate | Unable:
    """A configuration with the time that its runs took to the target, or why it has none."""
    reached = time_to_target(row.records, objective.target)
    if reached is None and not row.timed:
        return _SEARCHED if row.counted else Unable(row.outcome)
    if reached is None:
        return _TIMES_UNKNOWN
    # The median may be known although fewer than half of the runs reached the target, which is not reliable.
    if reached.median is None or 2 * reached.reached < reached.n:
        return Unable(f"not yet ({reached.reached} of {reached.n})", "target_not_reached")
    if reached.median <= 0:
        return _TIMES_UNKNOWN
    price = objective.price_per_second(row)
    low, high = (None if end is None else end * price for end in (reached.low, reached.high))
    value = Interval(reached.median * price, low, high)
    samples: dict[int, float] = {}
    for record in row.records:
        alone = time_to_target([record], objective.target)
        # A run that did not reach the target would have taken longer than it lasted.
        if alone is not None and (taken := alone.median or record.metrics.get("total_s")):
            samples[record.repeat] = objective.badness(taken * price)
    text = replace(reached, median=value.centre, low=low, high=high).describe(objective.form)
    return Candidate(row, value, text, samples, reached.reached == reached.n)
