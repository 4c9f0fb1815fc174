"""The objectives of `dmls-ray advise`: what a configuration is chosen for, and by which metric trials are judged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from dmls_ray.analysis.memory import EQUAL_HOST_MIB, MEMORY, memory_metric
from dmls_ray.analysis.metrics import format_of, label_of
from dmls_ray.analysis.stats.formatting import GENERIC, SECONDS, NumberFormat
from dmls_ray.analysis.stats.time_to_target import time_to_target
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.compare import TIME_TO_TARGET
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.training_metrics import LEARNED
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import is_compared, metric_direction


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `dmls-ray advise` besides the objective."""

    target: float | None = None
    """Test accuracy to be reached: for time-to-accuracy (without it, target_accuracy of the runs); for cost, which is
    of a whole run without it; for throughput and memory, what a configuration must come to."""
    price_per_hour: float | None = None
    """Price of one rank, in any currency; for cost."""
    metric: str | None = None
    """For accuracy, what to judge by; without it the metric of a search, else validation_accuracy where all have it,
    else test_accuracy."""
    minimizes: bool | None = None
    """Whether that is to be small; without it as in the search, else if it is a loss."""
    any_accuracy: bool = False
    """Whether a configuration may be chosen that loses accuracy, or has a higher loss, beyond chance; with a target,
    those may that reach it."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What a configuration is chosen for.

    A subclass sets `name`, `choose_metric` and what else differs.
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
    minimizes: bool
    target: float | None = None
    """Test accuracy to be reached."""
    price_per_hour: float | None = None
    """Price of one rank."""

    @classmethod
    def choose_metric(cls, table: Table, request: Request) -> str:
        """The metric by which the trials of a table are judged.

        Raises:
            ConfigError: the runs do not report what it needs.
        """
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Its heading, with the unit."""
        if self.metric == TIME_TO_TARGET:
            return f"{'cost' if self.takes_price else 's'} to {self.target:g}"
        return "cost/run" if self.takes_price else label_of(self.metric)

    @property
    def form(self) -> NumberFormat:
        if self.takes_price:
            return GENERIC
        return SECONDS if self.metric == TIME_TO_TARGET else format_of(self.metric)

    def samples(self, row: Trial) -> dict[int, float]:
        """The value of each block of a trial, as it is compared: of ratios, those above 0.

        A run that did not reach its target has a lower bound: it would have taken longer than it lasted.
        """
        values = row.by_block(self.metric)
        if self.metric == TIME_TO_TARGET:
            values = {}  # those of the records are to the target of their runs
            for record in row.records:
                reached = time_to_target([record], self.target)
                if reached is not None:
                    values[record.repeat] = reached.median or record.metrics.get("total_s", 0.0)
        price = self.price_per_second(row)
        samples = {}
        for block, value in values.items():
            # A resident set that did not grow has a growth of 0, and what is below the noise is as good.
            compared = max(value, EQUAL_HOST_MIB) if self.metric == "host_mem_mib" else value
            if self.is_learned or compared > 0:
                samples[block] = compared * price
        return samples

    def price_per_second(self, row: Trial) -> float:
        """What a second of all ranks of a trial costs; 1 where the price does not matter."""
        if self.price_per_hour is None:
            return 1.0
        return row.world_size * self.price_per_hour / 3600


class Throughput(Objective):
    """The most images per second; the shortest runs where no rate is known."""

    name = "throughput"
    needs_times = True
    work_matters = True

    @classmethod
    def choose_metric(cls, table: Table, request: Request) -> str:
        timed = [row for row in table.rows if row.value_of("total_s") is not None]
        rates = [row.value_of("images_per_s") for row in timed]
        return "total_s" if None in rates else "images_per_s"


class Accuracy(Objective):
    """The best value of a metric: an accuracy, a loss or another metric by which answers compare."""

    name = "accuracy"
    is_learned = True

    @classmethod
    def choose_metric(cls, table: Table, request: Request) -> str:
        """The given metric; else that of the search; else validation_accuracy where all have it, since choosing by
        test samples flatters.
        """
        reported = [name for name in table.metric_names if name in LEARNED or is_compared(name)]
        counted = [row for row in table.rows if row.counted]
        if request.metric is not None:
            name = request.metric
        elif table.best_by is not None and table.best_by[0] in reported:
            name = table.best_by[0]
        elif all("validation_accuracy" in row.estimates for row in counted):
            name = "validation_accuracy"
        else:
            name = "test_accuracy"
        if name not in reported:
            choices = ", ".join(reported) or "none"
            raise ConfigError(f"--for accuracy: no run reports {name}; give --metric, one of {choices}.")
        return name


class Memory(Objective):
    """The least memory of a rank."""

    name = "memory"
    work_matters = True

    @classmethod
    def choose_metric(cls, table: Table, request: Request) -> str:
        return memory_metric(table.rows) or next(iter(MEMORY))


class TimeToAccuracy(Objective):
    """The shortest time to a test accuracy."""

    name = "time-to-accuracy"
    needs_times = True

    @classmethod
    def choose_metric(cls, table: Table, request: Request) -> str:
        if request.target is None and target_of_runs(table) is None:
            raise ConfigError(
                "--for time-to-accuracy needs a target, which these runs do not share; give --target-accuracy."
            )
        return TIME_TO_TARGET


class Cost(Objective):
    """The least price of a run, or of the time to a test accuracy."""

    name = "cost"
    needs_times = True
    takes_price = True
    work_matters = True

    @classmethod
    def choose_metric(cls, table: Table, request: Request) -> str:
        if request.target is not None:
            return TIME_TO_TARGET
        if table.questions.duration_set_by:
            raise ConfigError(
                f"--for cost needs runs that end when their work is done, and {table.questions.duration_set_by}; "
                "give --for throughput."
            )
        return "total_s"


OBJECTIVES = {kind.name: kind for kind in (Accuracy, Cost, Memory, Throughput, TimeToAccuracy)}


def target_of_runs(table: Table) -> float | None:
    """The target accuracy that all runs have; None where they share none."""
    targets: set[Any] = {record.config.get("target_accuracy") for row in table.rows for record in row.records}
    return targets.pop() if len(targets) == 1 else None


def settle(name: str, table: Table, request: Request) -> Objective:
    """An objective, as the runs of a sweep can be judged by it.

    Args:
        name: the objective, as after `--for`.
        table: the trials of the sweep.
        request: the other options.

    Raises:
        ConfigError: the objective lacks something, is given something that has no meaning for it, or the runs do not
            report what it needs.
    """
    kind = OBJECTIVES[name]
    _check_options(kind, request)
    if not any(row.counted for row in table.rows):
        raise ConfigError("no run ended ok, so there is nothing to choose from; see the reasons in its table.md.")
    if kind.needs_times and not any(row.timed for row in table.rows):
        raise ConfigError(
            f"--for {name} needs times, and these runs went side by side in a search, whose times say nothing. "
            "Give --for accuracy, or measure the configurations again with --mode bench."
        )
    if request.target is not None and not table.has("test_accuracy"):
        raise ConfigError("--target-accuracy needs test accuracies, and no run reports one; give --for throughput.")
    metric, target = kind.choose_metric(table, request), request.target
    if metric == TIME_TO_TARGET:
        target = target_of_runs(table) if target is None else target
    elif not table.has(metric):
        raise ConfigError(f"--for {name} needs {metric}, which no run reports; give another --for.")
    minimizes = request.minimizes
    if minimizes is None:
        minimizes = metric == TIME_TO_TARGET or _minimizes(table, metric)
    return kind(metric=metric, minimizes=minimizes, target=target, price_per_hour=request.price_per_hour)


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
