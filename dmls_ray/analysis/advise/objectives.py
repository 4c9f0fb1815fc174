"""What a configuration can be chosen for, and how good each one of a sweep is at it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from dmls_ray.analysis.advise.pareto import costs_of
from dmls_ray.analysis.metrics import format_of, is_time, label_of, quantity_of
from dmls_ray.analysis.metrics import minimizes as is_minimized
from dmls_ray.analysis.stats.formatting import GENERIC, RATIO, SECONDS, NumberFormat, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import Estimate, Interval, compare, difference, estimate
from dmls_ray.analysis.stats.paired import logarithm_of, ratio_of
from dmls_ray.analysis.stats.time_to_target import time_to_target
from dmls_ray.analysis.summary.phrases import describe_configuration
from dmls_ray.analysis.table.row import Row, Table
from dmls_ray.records.training_metrics import LEARNED
from dmls_ray.util.errors import ConfigError

Aim = Literal["time-to-accuracy", "throughput", "accuracy", "memory", "cost"]
TIMES_UNKNOWN = "times of its epochs not known"
AIMS: tuple[Aim, ...] = ("time-to-accuracy", "throughput", "accuracy", "memory", "cost")


@dataclass(frozen=True)
class Goal:
    """An aim with all that it takes to judge by it."""

    aim: Aim
    measure: str
    """What is looked at; `target_s` for the time to a target."""
    head: str
    """What it is called, with its unit."""
    form: NumberFormat
    minimizes: bool
    as_ratio: bool
    """Whether configurations are set against each other by a ratio, or else by a difference."""
    target: float | None = None
    """Test accuracy to be reached."""
    price_per_hour: float | None = None
    """Of one rank."""

    def badness(self, value: float) -> float:
        """A value on a scale on which less is better and differences count: its logarithm where ratios do."""
        scaled = math.log(value) if self.as_ratio else value
        return scaled if self.minimizes else -scaled

    def compared(self, one: Candidate, other: Candidate, level: float = 0.95) -> Interval | None:
        """By how much one is worse than the other on that scale, paired by block, times by those in which both ran on
        one machine and device; None without any. At one level it is the interval that the answer has of the same two.
        """
        mine, its = self.paired_samples(one, other)
        if not self.as_ratio:
            worse = difference(mine, its, level=level)
            return Interval(worse.centre, worse.low, worse.high) if worse else None
        sides = ({block: math.exp(value) for block, value in samples.items()} for samples in (mine, its))
        times = compare(*sides, level=level)
        return logarithm_of(times.ratio) if times else None

    def paired_samples(self, one: Candidate, other: Candidate) -> tuple[dict[int, float], dict[int, float]]:
        """The samples of both, of the blocks that can be compared."""
        blocks = one.samples.keys() & other.samples.keys()
        if is_time(self.measure) or self.measure == "target_s":
            blocks &= one.row.in_one_place_with(other.row)
        mine, its = ({block: item.samples[block] for block in sorted(blocks)} for item in (one, other))
        return mine, its

    def inverse(self, worse: Interval) -> Interval:
        """By how much the other one is worse than the one."""
        low, high = (None if end is None else -end for end in (worse.high, worse.low))
        return Interval(-worse.centre, low, high)

    def told(self, worse: Interval) -> str:
        """Such an interval as what one has of the other: `1.20 times the images/s`, `+0.010 test acc.`."""
        turned = worse if self.minimizes else self.inverse(worse)
        if self.as_ratio:
            return f"{format_interval(ratio_of(turned), RATIO)} times the {self.head}"
        return f"{format_interval(turned, with_sign(self.form))} {self.head}"


@dataclass(frozen=True)
class Candidate:
    """A configuration that was measured, and how good it is."""

    row: Row
    value: Estimate | Interval
    text: str
    """Its value with its interval."""
    samples: dict[int, float]
    """By block, on the scale of `Goal.badness`; of a run that did not get to its target, at least that."""
    is_whole: bool = True
    """Whether every run got there."""

    @property
    def name(self) -> str:
        return describe_configuration(self.row.factors)


def goal_of(
    table: Table,
    aim: Aim,
    *,
    target: float | None = None,
    price_per_hour: float | None = None,
    metric: str | None = None,
    minimizes: bool | None = None,
) -> Goal:
    """The aim, as the runs of a sweep can be judged by it.

    Raises:
        ConfigError: the aim lacks something, is given something that means nothing for it, or the runs say nothing of
            it.
    """
    if aim not in AIMS:
        raise ConfigError(f"--for {aim} is unknown; choose from {', '.join(AIMS)}.")
    _check(aim, target, price_per_hour, metric, minimizes)
    ok = [record for row in table.rows for record in row.counted]
    if not ok:
        raise ConfigError("no run ended ok, so there is nothing to choose from; see the reasons in its table.md.")
    timed = aim in ("time-to-accuracy", "throughput", "cost")
    if timed and all(record.mode == "search" for record in ok):
        raise ConfigError(
            f"--for {aim} needs times, and these runs went side by side in a search, whose times say nothing. Give "
            "--for accuracy, or measure the configurations anew with --mode bench."
        )
    if aim == "time-to-accuracy" or (aim == "cost" and target is not None):
        target = _target(table, target)
        if aim == "cost":
            return Goal(aim, "target_s", f"cost to {target:g}", GENERIC, True, True, target, price_per_hour)
        return Goal(aim, "target_s", f"s to {target:g}", SECONDS, True, True, target)
    if target is not None:
        _target(table, target)
    if aim == "cost":
        if "total_s" not in costs_of(table):
            raise ConfigError(
                f"--for cost needs runs that end when their work is done, and {table.presentation.duration_set_by}; "
                "give --for throughput."
            )
        return Goal(aim, "total_s", "cost/run", GENERIC, True, True, price_per_hour=price_per_hour)
    name = {"throughput": _speed(table), "memory": "peak_mem_mib"}.get(aim) or _metric(table, metric)
    if not any(row.estimate(name) for row in table.rows):
        raise ConfigError(f"--for {aim} needs {name}, which no run told; give another --for.")
    head, form = label_of(name), format_of(name)
    least = minimizes if minimizes is not None else is_minimized(name)
    return Goal(aim, name, head, form, least, aim != "accuracy", target)


def candidates(table: Table, goal: Goal) -> tuple[list[Candidate], list[tuple[Row, str]]]:
    """The configurations that can be chosen, the best first, and the others with the reason why not."""
    able: list[Candidate] = []
    unable: list[tuple[Row, str]] = []
    for row in table.rows:
        candidate = _to_target(row, goal) if goal.measure == "target_s" else _measured(row, goal)
        if isinstance(candidate, Candidate):
            able.append(candidate)
        else:
            unable.append((row, candidate))
    able.sort(key=lambda item: goal.badness(item.value.centre))
    return able, unable


def _check(aim: Aim, target: float | None, price: float | None, metric: str | None, minimizes: bool | None) -> None:
    if target is not None and not 0 < target <= 1:
        raise ConfigError(f"--target-accuracy {target:g} is out of range; give more than 0 and at most 1.")
    if target is not None and aim == "accuracy":
        raise ConfigError(f"--target-accuracy {target:g} means nothing for --for accuracy; leave it out.")
    if aim == "cost" and price is None:
        raise ConfigError("--for cost needs what a rank costs an hour; give --price-per-hour 2.5, say.")
    if price is not None and aim != "cost":
        raise ConfigError(f"--price-per-hour {price:g} means nothing for --for {aim}; leave it out.")
    if price is not None and not 0 < price < math.inf:
        raise ConfigError(f"--price-per-hour {price:g} is out of range; give more than 0.")
    if metric is not None and aim != "accuracy":
        raise ConfigError(f"--metric {metric} means nothing for --for {aim}; leave it out, or give --for accuracy.")
    if minimizes is not None and aim != "accuracy":
        given = "min" if minimizes else "max"
        raise ConfigError(f"--goal {given} means nothing for --for {aim}; leave it out, or give --for accuracy.")


def _target(table: Table, target: float | None) -> float:
    """The test accuracy to be reached: the one that was given, else the runs' own."""
    rows = [row for row in table.rows if row.level("test_accuracy") is not None]
    if not rows:
        raise ConfigError("--target-accuracy needs test accuracies, and no run told one; give --for throughput, say.")
    if target is not None:
        return target
    own = {record.config.get("target_accuracy") for row in rows for record in row.records}
    if len(own) == 1 and (known := own.pop()) is not None:
        return float(known)
    highest = max(row.level("test_accuracy") or 0.0 for row in rows)
    why = "the runs have none of their own" if own <= {None} else "the runs have several of their own"
    raise ConfigError(
        f"--for time-to-accuracy needs a target, and {why}; give --target-accuracy (the highest test accuracy is "
        f"{highest:.3f})."
    )


def _speed(table: Table) -> str:
    """images_per_s, or total_s where a training function of the user's own told no rate."""
    rated = all(row.level("images_per_s") is not None for row in table.rows if row.level("total_s") is not None)
    return "images_per_s" if rated else "total_s"


def _metric(table: Table, metric: str | None) -> str:
    """What accuracy is judged by; validation_accuracy where all have it, since choosing by test samples flatters."""
    rows = [row for row in table.rows if row.counted]
    known = [*(name for name in LEARNED if table.has(name)), *table.custom_metric_names]
    if metric is not None:
        if metric not in known:
            raise ConfigError(f"--metric {metric} was told by no run; choose from {', '.join(known) or 'none'}.")
        return metric
    if all("validation_accuracy" in row.estimates for row in rows):
        return "validation_accuracy"
    if table.has("test_accuracy"):
        return "test_accuracy"
    raise ConfigError(
        f"--for accuracy needs test_accuracy, which no run told; give --metric, one of {', '.join(known) or 'none'}."
    )


def _measured(row: Row, goal: Goal) -> Candidate | str:
    """A configuration by a measure of its runs, or why it cannot be judged by it."""
    values = row.by_block(goal.measure)
    if not row.counted:
        return row.outcome
    if goal.as_ratio:
        values = {block: value for block, value in values.items() if value > 0}
    if not values:
        searched = is_time(goal.measure) and all(record.mode == "search" for record in row.counted)
        return "searched: no times" if searched else f"no {goal.measure}"
    reached = row.level("test_accuracy")
    if goal.target is not None and (reached is None or reached < goal.target):
        return "test accuracy not known" if reached is None else f"test accuracy {reached:.3f}"
    if goal.price_per_hour is not None:
        values = {block: value * _price(row, goal.price_per_hour) for block, value in values.items()}
    quantity = "amount" if goal.aim == "cost" else quantity_of(goal.measure)
    value = estimate(list(values.values()), quantity)
    return Candidate(
        row, value, format_interval(value, goal.form), {key: goal.badness(each) for key, each in values.items()}
    )


def _to_target(row: Row, goal: Goal) -> Candidate | str:
    """A configuration by when its runs reached the target, or why it cannot be judged by it."""
    reached = time_to_target(row.records, goal.target)
    if reached is None and not row.timed:
        return "searched: no times" if row.counted else row.outcome
    if reached is None:
        return TIMES_UNKNOWN
    # The estimate may be known where fewer have: such a configuration is not one to count on.
    if reached.median is None or 2 * reached.reached < reached.n:
        return f"not yet ({reached.reached} of {reached.n})"
    if reached.median <= 0:
        return TIMES_UNKNOWN
    factor = 1.0 if goal.price_per_hour is None else _price(row, goal.price_per_hour)
    median, low, high = (None if end is None else end * factor for end in (reached.median, reached.low, reached.high))
    assert median is not None
    samples: dict[int, float] = {}
    for record in row.records:
        alone = time_to_target([record], goal.target)
        # A run that has not got there took longer than it lasted.
        taken = None if alone is None else alone.median or record.total_s
        if taken:
            samples[record.repeat] = goal.badness(taken * factor)
    text = replace(reached, median=median, low=low, high=high).told(goal.form)
    return Candidate(row, Interval(median, low, high), text, samples, reached.reached == reached.n)


def _price(row: Row, per_hour: float) -> float:
    """What a second of all ranks costs."""
    return row.world_size * per_hour / 3600
