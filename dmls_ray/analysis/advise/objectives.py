"""The objectives of `dmls-ray advise`, by name."""

from __future__ import annotations

from typing import Any, Self

from dmls_ray.analysis.advise.objective import Objective, Request
from dmls_ray.analysis.memory import EQUAL_HOST_MIB, MEMORY, hardly_differs, memory_metric
from dmls_ray.analysis.stats.formatting import GENERIC, SECONDS
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.compare import TIME_TO_TARGET
from dmls_ray.records.training_metrics import LEARNED
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import is_compared


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

    @property
    def _is_growth(self) -> bool:
        return self.metric == "host_mem_mib"

    def counts(self, value: float) -> bool:
        return value > 0 or (self._is_growth and value == 0)

    def score(self, value: float) -> float:
        # A resident set that did not grow has a growth of 0, and what is below the noise is as good.
        if self._is_growth:
            value = max(value, EQUAL_HOST_MIB)
        return super().score(value)

    def is_negligible(self, value: float, base: float) -> bool:
        return hardly_differs([value, base], self.metric)


class TimeToAccuracy(Objective):
    """The shortest time to a test accuracy."""

    name = "time-to-accuracy"
    needs_times = True

    @classmethod
    def settle(cls, table: Table, request: Request) -> Self:
        target = request.target
        if target is None:
            target = _target_of_runs(table)
        return cls(metric=TIME_TO_TARGET, label=f"s to {target:g}", form=SECONDS, minimizes=True, target=target)


class Cost(Objective):
    """The least price of a run, or of the time to a test accuracy."""

    name = "cost"
    needs_times = True
    takes_price = True
    work_matters = True

    @classmethod
    def settle(cls, table: Table, request: Request) -> Self:
        target, price = request.target, request.price_per_hour
        metric, label = "total_s", "cost/run"
        if target is not None:
            metric, label = TIME_TO_TARGET, f"cost to {target:g}"
        elif table.questions.duration_set_by:
            raise ConfigError(
                f"--for cost needs runs that end when their work is done, and {table.questions.duration_set_by}; "
                "give --for throughput."
            )
        return cls(metric=metric, label=label, form=GENERIC, minimizes=True, target=target, price_per_hour=price)


def _target_of_runs(table: Table) -> float:
    """The target accuracy that all runs have."""
    targets: set[Any] = {record.config.get("target_accuracy") for row in table.rows for record in row.records}
    if len(targets) == 1 and None not in targets:
        return float(next(iter(targets)))
    raise ConfigError("--for time-to-accuracy needs a target, which these runs do not share; give --target-accuracy.")


OBJECTIVES = {kind.name: kind for kind in (Accuracy, Cost, Memory, Throughput, TimeToAccuracy)}
