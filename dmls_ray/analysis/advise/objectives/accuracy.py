"""The best value of a metric: an accuracy, a loss or another metric by which answers compare."""

from __future__ import annotations

from dmls_ray.analysis.advise.objective import Objective, Request
from dmls_ray.analysis.table.model import Table
from dmls_ray.records.training_metrics import LEARNED
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import is_compared


class Accuracy(Objective):
    name = "accuracy"
    is_learned = True

    @classmethod
    def metric(cls, table: Table, request: Request) -> str:
        """The given metric; else that of the search; else validation_accuracy where all have it, since choosing by
        test samples flatters.
        """
        reported = [name for name in table.metric_names if name in LEARNED or is_compared(name)]
        choices = ", ".join(reported) or "none"
        if request.metric is not None:
            if request.metric not in reported:
                raise ConfigError(f"--metric {request.metric} is reported by no run; choose from {choices}.")
            return request.metric
        if table.best_by is not None and table.best_by[0] in reported:
            return table.best_by[0]
        if all("validation_accuracy" in row.estimates for row in table.rows if row.counted):
            return "validation_accuracy"
        if table.has("test_accuracy"):
            return "test_accuracy"
        raise ConfigError(f"--for accuracy needs test_accuracy, which no run reports; give --metric, one of {choices}.")
