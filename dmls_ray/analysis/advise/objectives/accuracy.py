"""The best value of a metric: an accuracy, a loss or a custom metric."""

from __future__ import annotations

from typing import ClassVar

from dmls_ray.analysis.advise.objective import Objective, Request
from dmls_ray.analysis.table.model import Table
from dmls_ray.records.training_metrics import LEARNED
from dmls_ray.util.errors import ConfigError


class Accuracy(Objective):
    name: ClassVar[str] = "accuracy"
    as_ratio: ClassVar[bool] = False
    takes_target: ClassVar[bool] = False
    takes_metric: ClassVar[bool] = True
    depends_on_machine: ClassVar[bool] = False

    @classmethod
    def metric(cls, table: Table, request: Request) -> str:
        """The given metric; else validation_accuracy where all have it, since choosing by test samples flatters."""
        rows = [row for row in table.rows if row.counted]
        known = [*(name for name in LEARNED if table.has(name)), *table.custom_metric_names]
        if request.metric is not None:
            if request.metric not in known:
                raise ConfigError(
                    f"--metric {request.metric} is reported by no run; choose from {', '.join(known) or 'none'}."
                )
            return request.metric
        if all("validation_accuracy" in row.estimates for row in rows):
            return "validation_accuracy"
        if table.has("test_accuracy"):
            return "test_accuracy"
        raise ConfigError(
            "--for accuracy needs test_accuracy, which no run reports; give --metric, one of "
            f"{', '.join(known) or 'none'}."
        )
