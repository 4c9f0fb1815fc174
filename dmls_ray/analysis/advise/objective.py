"""`Objective`: what a configuration is chosen for, and the scale on which trials are compared by it.

The subclasses are in `advise/objectives.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import format_of, label_of
from dmls_ray.analysis.stats.block_model import BlockModel
from dmls_ray.analysis.stats.formatting import NumberFormat
from dmls_ray.analysis.stats.intervals import Interval, exponential
from dmls_ray.analysis.stats.looks import Looks
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import metric_direction


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `dmls-ray advise` besides the objective."""

    target: float | None = None
    """Test accuracy to be reached."""
    price_per_hour: float | None = None
    """Price of one rank."""
    metric: str | None = None
    minimizes: bool | None = None
    any_accuracy: bool = False
    """Whether a trial may be chosen that loses accuracy."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What a configuration is chosen for.

    A subclass sets `name`, `choose_metric` and the class variables that differ.
    """

    name: ClassVar[str]
    """After `--for`."""
    needs_times: ClassVar[bool] = False
    """Whether it needs times, which runs of a search do not have: they share the machine."""
    is_learned: ClassVar[bool] = False
    """Whether it is a result of training: compared by a difference in place of a ratio, and without a target
    accuracy."""
    takes_price: ClassVar[bool] = False
    work_matters: ClassVar[bool] = False
    """Whether a configuration that does less work looks better."""

    metric: str
    """A metric of runs, or `TIME_TO_TARGET`."""
    label: str
    """Its heading, with the unit."""
    form: NumberFormat
    minimizes: bool
    target: float | None = None
    """Test accuracy to be reached."""
    price_per_hour: float | None = None
    """Price of one rank."""

    @classmethod
    def choose_metric(cls, table: Table, request: Request) -> str:
        """The metric by which the trials of a table are judged."""
        raise NotImplementedError

    @classmethod
    def settle(cls, table: Table, request: Request) -> Self:
        """The objective as the runs of a table can be judged by it.

        Raises:
            ConfigError: the runs do not report what it needs.
        """
        name = cls.choose_metric(table, request)
        if not table.has(name):
            raise ConfigError(f"--for {cls.name} needs {name}, which no run reports; give another --for.")
        minimizes = request.minimizes
        if minimizes is None:
            minimizes = _minimizes(table, name)
        return cls(metric=name, label=label_of(name), form=format_of(name), minimizes=minimizes, target=request.target)

    @property
    def is_exact(self) -> bool:
        """Whether the metric is the same in every repeat, so that one run decides."""
        return self.metric in EXACT

    def counts(self, value: float) -> bool:
        """Whether a value can be judged: of ratios, one above 0."""
        return self.is_learned or value > 0

    def score(self, value: float) -> float:
        """A value on a scale on which less is better and differences count: its logarithm where ratios do."""
        if not self.is_learned:
            value = math.log(value)
        return value if self.minimizes else -value

    def scores(self, row: Trial) -> dict[int, float]:
        """The score of each block of a trial."""
        price = self.price_per_second(row)
        values = row.by_block(self.metric)
        return {block: self.score(value * price) for block, value in values.items() if self.counts(value)}

    def price_per_second(self, row: Trial) -> float:
        """What a second of all ranks of a trial costs; 1 where the price does not matter."""
        if self.price_per_hour is None:
            return 1.0
        return row.world_size * self.price_per_hour / 3600

    def model(
        self, rows: Sequence[Trial], scores: Mapping[str, Mapping[int, float]], *, looks: Looks | None = None
    ) -> BlockModel:
        """How the scores of trials compare.

        Args:
            rows: at least one trial.
            scores: trial_id -> block -> score; trials without any are left out.
            looks: how their number of blocks came about, if otherwise than for all comparisons of their table.
        """
        samples = {trial: by_block for trial, by_block in scores.items() if by_block}
        # The scores of ratios are logarithms.
        return rows[0].comparisons.model_of(samples, self.metric, is_ratio=False, looks=looks)

    def is_negligible(self, value: float, base: float) -> bool:
        """Whether the difference of two values is of no use, however sure it is."""
        return False

    def effect(self, worse: Interval) -> Interval:
        """A difference of scores as a ratio of values, or as a difference of values where `is_learned`."""
        effect = worse
        if not self.minimizes:
            effect = Interval(-worse.centre, _negated(worse.high), _negated(worse.low))
        if self.is_learned:
            return effect
        return Interval(math.exp(effect.centre), _exponential(effect.low), _exponential(effect.high))


def _minimizes(table: Table, name: str) -> bool:
    """Whether less of a metric is better: as in the search of the sweep, else by the metric's direction.

    Raises:
        ConfigError: neither is known.
    """
    if table.best_by is not None and name == table.best_by[0]:
        return table.best_by[1]
    direction = metric_direction(name)
    if direction == "none":
        raise ConfigError(f"--metric {name}: more or less may be better; add --goal max or --goal min.")
    return direction == "min"


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


def _exponential(value: float | None) -> float | None:
    return None if value is None else exponential(value)


def settle(kind: type[Objective], table: Table, request: Request) -> Objective:
    """An objective of this kind, as the runs of a sweep can be judged by it.

    Raises:
        ConfigError: the objective lacks something, is given something that has no meaning for it, or the runs do not
            report what it needs.
    """
    _check_options(kind, request)
    if not any(row.counted for row in table.rows):
        raise ConfigError("no run ended ok, so there is nothing to choose from; see the reasons in its table.md.")
    if kind.needs_times and not any(row.timed for row in table.rows):
        raise ConfigError(
            f"--for {kind.name} needs times, and these runs went side by side in a search, whose times say nothing. "
            "Give --for accuracy, or measure the configurations again with --mode bench."
        )
    if request.target is not None and not table.has("test_accuracy"):
        raise ConfigError("--target-accuracy needs test accuracies, and no run reports one; give --for throughput.")
    return kind.settle(table, request)


def _check_options(kind: type[Objective], request: Request) -> None:
    target, price = request.target, request.price_per_hour
    if target is not None and not 0 < target <= 1:
        raise ConfigError(f"--target-accuracy {target:g} is out of range; give more than 0 and at most 1.")
    if price is None and kind.takes_price:
        raise ConfigError(f"--for {kind.name} needs what a rank costs an hour; give --price-per-hour 2.5, say.")
    if price is not None and not 0 < price < math.inf:
        raise ConfigError(f"--price-per-hour {price:g} is out of range; give more than 0.")
    for flag, is_given, has_meaning in (
        ("--target-accuracy", target is not None, not kind.is_learned),
        ("--price-per-hour", price is not None, kind.takes_price),
        ("--metric", request.metric is not None, kind.is_learned),
        ("--goal", request.minimizes is not None, kind.is_learned),
        ("--any-accuracy", request.any_accuracy, not kind.is_learned),
    ):
        if is_given and not has_meaning:
            raise ConfigError(f"{flag} means nothing for --for {kind.name}; leave it out.")
