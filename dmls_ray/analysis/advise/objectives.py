"""The objectives of `dmls-ray advise`: what a configuration is chosen for, and by which metric trials are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dmls_ray.analysis.findings.measures import Kind, Measure
from dmls_ray.analysis.metrics import MEMORY_METRICS, format_of, label_of
from dmls_ray.analysis.stats.formatting import GENERIC, SECONDS, NumberFormat
from dmls_ray.analysis.stats.learning import time_to_target
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.trials.common_metrics import common_rate, durations_of, memory_metric
from dmls_ray.analysis.trials.run_lengths import were_ended_apart
from dmls_ray.analysis.trials.trial import TIME_TO_TARGET, Trial
from dmls_ray.records.metrics import LEARNED
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import is_compared, metric_direction


@dataclass(kw_only=True)
class Objective:
    """What a configuration is chosen for, with the options of `dmls-ray advise`.

    A subclass sets `name`, `choose_metric` and what else differs.

    Raises:
        ConfigError: it lacks an option, is given one that has no meaning for it, or the runs do not report what it
            needs.
    """

    name: ClassVar[str]
    """After `--for`."""
    needs_times: ClassVar[bool] = False
    """Whether it needs times, which runs of a search do not have: they share the machine."""
    is_learned: ClassVar[bool] = False
    """Whether it is a result of training: compared by a difference in place of a ratio, and without a target
    accuracy."""
    needs_price: ClassVar[bool] = False
    target_noun: ClassVar[str] = "s"
    """What it takes to reach a target accuracy, and how that is written."""
    target_form: ClassVar[NumberFormat] = SECONDS

    table: Table
    """The trials of the sweep."""
    target: float | None = None
    """Test accuracy to be reached: for time-to-accuracy (without it, target_accuracy of the runs); for cost, which is
    of a whole run without it; for throughput and memory, what a configuration must come to."""
    metric: str = ""
    """A metric of runs, or `TIME_TO_TARGET`. It is chosen where it is not given, which it may be for accuracy."""
    minimizes: bool | None = None
    """Whether that is to be small; without it as in the search, else if it is a loss."""
    any_accuracy: bool = False
    """Whether a configuration may be chosen that loses accuracy, or has a higher loss, beyond chance; with a target,
    those may that reach it."""

    def __post_init__(self) -> None:
        self._check_options()
        if not any(row.counted for row in self.table.rows):
            raise ConfigError("no run ended ok, so nothing can be chosen; the reasons are in table.md of the folder.")
        if self.needs_times and not any(row.timed for row in self.table.rows):
            raise ConfigError(
                f"--for {self.name} needs times, but these runs are of a search: they shared the machine, so their "
                "times are not comparable. Give --for accuracy, or measure the configurations again without --search."
            )
        if self.target is not None and not self.table.has("test_accuracy"):
            raise ConfigError("--target-accuracy needs test accuracies, and no run reports one; give --for throughput.")
        self.metric = self.choose_metric(self.table)
        if self.metric != TIME_TO_TARGET and not self.table.has(self.metric):
            raise ConfigError(f"--for {self.name} needs {self.metric}, which no run reports; give another --for.")
        if self.minimizes is None:
            self.minimizes = self._is_minimized()

    def _check_options(self) -> None:
        target, has_price = self.target, self.table.has("run_cost")
        if target is not None and not 0 < target <= 1:
            raise ConfigError(f"--target-accuracy {target:g} is out of range; give more than 0 and at most 1.")
        if self.needs_price and not has_price:
            raise ConfigError(f"--for {self.name} needs prices of machines; give --price h100=2.99, for example.")
        without_use = {"--price": has_price and not self.needs_price}
        if self.is_learned:
            without_use |= {"--target-accuracy": target is not None, "--any-accuracy": self.any_accuracy}
        else:
            without_use |= {"--metric": bool(self.metric), "--goal": self.minimizes is not None}
        for flag, is_given in without_use.items():
            if is_given:
                raise ConfigError(f"{flag} has no effect with --for {self.name}; leave it out.")

    def _is_minimized(self) -> bool:
        """Whether less is better: as in the search of the sweep, else by the metric's direction."""
        best_by = self.table.best_by
        if best_by is not None and self.metric == best_by[0]:
            return best_by[1]
        direction = metric_direction(self.metric)
        if direction == "none":
            raise ConfigError(
                f"--metric {self.metric}: whether more or less is better is not known; add --goal max or --goal min."
            )
        return direction == "min"

    def choose_metric(self, table: Table) -> str:
        """The metric by which the trials of a table are judged.

        Raises:
            ConfigError: the runs do not report what it needs.
        """
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Its heading, with the unit."""
        if self.metric == TIME_TO_TARGET:
            return f"{self.target_noun} to {self.target:g}"
        return label_of(self.metric)

    @property
    def measure(self) -> Measure:
        """What trials are compared by."""
        kind: Kind = "difference" if self.is_learned else "ratio"
        return Measure(metric=self.metric, kind=kind, noun=self.label, better=-1 if self.minimizes else 1)

    @property
    def form(self) -> NumberFormat:
        return self.target_form if self.metric == TIME_TO_TARGET else format_of(self.metric)

    def samples(self, row: Trial) -> dict[int, float]:
        """The value of each block of a trial; of what is compared by ratios, those above 0.

        A run that did not reach its target has a lower bound: it would have taken longer than it lasted. A resident set
        that did not grow has a growth of 0, which `rank` compares as the least that matters.
        """
        values = row.by_block(self.metric)
        if self.metric == TIME_TO_TARGET:
            scale = self.scale_of(row) or 0.0
            values = {}  # those of the records are to the target of their runs
            for record in row.records:
                reached = time_to_target([record], self.target)
                if reached is not None:
                    values[record.repeat] = scale * (reached.centre or record.metrics.get("total_s", 0.0))
        may_be_0 = self.is_learned or self.metric == "host_mem_mib"
        return {block: value for block, value in values.items() if may_be_0 or value > 0}

    def scale_of(self, row: Trial) -> float | None:
        """What a second of a trial up to its target counts as; None where that is not known."""
        return 1.0


class Throughput(Objective):
    """The most samples per second; the shortest runs where no rate is known."""

    name = "throughput"
    needs_times = True

    def choose_metric(self, table: Table) -> str:
        timed = [row for row in table.rows if row.value_of("total_s") is not None]
        rate = common_rate(timed)
        if not rate and "total_s" not in durations_of(timed):
            raise ConfigError(
                f"--for {self.name} needs the samples of a step, which are not known for all trials; "
                f"{Presentation.of_trials(table.rows).samples_by}."
            )
        return rate or "total_s"


class Accuracy(Objective):
    """The best value of a metric: an accuracy, a loss or another metric by which answers compare.

    Without a given one it is that of the search; else validation_accuracy where all have it, since choosing by test
    samples flatters.
    """

    name = "accuracy"
    is_learned = True

    def choose_metric(self, table: Table) -> str:
        reported = [name for name in table.metric_names if name in LEARNED or is_compared(name)]
        name = self.metric or "test_accuracy"
        if not self.metric and table.best_by is not None and table.best_by[0] in reported:
            name = table.best_by[0]
        elif not self.metric and all("validation_accuracy" in row.estimates for row in table.rows if row.counted):
            name = "validation_accuracy"
        if name not in reported:
            choices = ", ".join(reported) or "none"
            raise ConfigError(f"--for accuracy: no run reports {name}; give --metric, one of {choices}.")
        return name


class Memory(Objective):
    """The least memory of a rank."""

    name = "memory"

    def choose_metric(self, table: Table) -> str:
        return memory_metric(table.rows) or next(iter(MEMORY_METRICS))


class TimeToAccuracy(Objective):
    """The shortest time to a test accuracy."""

    name = "time-to-accuracy"
    needs_times = True

    def choose_metric(self, table: Table) -> str:
        if self.target is None:
            self.target = target_of_runs(table)
        if self.target is None:
            raise ConfigError(
                "--for time-to-accuracy needs one target, and these runs have none or several; give --target-accuracy."
            )
        return TIME_TO_TARGET


class Cost(Objective):
    """The least price of a run, or of the time to a test accuracy."""

    name = "cost"
    needs_times = True
    needs_price = True
    target_noun, target_form = "cost", GENERIC

    def choose_metric(self, table: Table) -> str:
        if self.target is not None:
            return TIME_TO_TARGET
        if reason := _duration_set_by(table):
            raise ConfigError(
                f"--for cost needs runs that end when their work is done, but {reason}; give --for throughput."
            )
        return "run_cost"

    def scale_of(self, row: Trial) -> float | None:
        """The price of a second; None where not all runs have a price."""
        cost, seconds = row.estimates.get("run_cost"), row.estimates.get("total_s")
        if cost is None or seconds is None or cost.n < seconds.n:
            return None
        return cost.centre / seconds.centre


OBJECTIVES = {kind.name: kind for kind in (Accuracy, Cost, Memory, Throughput, TimeToAccuracy)}


def target_of_runs(table: Table) -> float | None:
    """The target accuracy that all runs have; None where they share none."""
    targets: set[Any] = {record.config.get("target_accuracy") for row in table.rows for record in row.records}
    return targets.pop() if len(targets) == 1 else None


def costs_of(table: Table) -> list[str]:
    """The metrics that a trial should have little of: the axes of a front besides accuracy.

    The duration of runs that go on for a given time, or were ended after different steps, is no cost.
    """
    names = [memory_metric(table.rows)]
    if not _duration_set_by(table):
        names.insert(0, "total_s")
    return [name for name in names if name]


def _duration_set_by(table: Table) -> str:
    """What sets the duration of runs, where it is not their work; empty where it is."""
    if were_ended_apart([record for row in table.rows for record in row.timed]):
        return table.questions.duration_set_by or "these ended after different numbers of steps"
    return table.questions.duration_set_by
