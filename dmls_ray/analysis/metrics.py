"""How the metrics of runs are headed, written and averaged, by their entries in the registry."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from dmls_ray.analysis.stats.formatting import ACCURACY, GENERIC, INTEGER, MEMORY, RATE, RATIO, SECONDS, NumberFormat
from dmls_ray.analysis.stats.intervals import Quantity
from dmls_ray.records.metrics import Metric
from dmls_ray.records.model import RunRecord
from dmls_ray.workloads.registry import registered_metrics

_FORMATS: Mapping[str, NumberFormat] = {
    "seconds": SECONDS,
    "ratio": RATIO,
    "rate": RATE,
    "memory": MEMORY,
    "whole": INTEGER,
    "accuracy": ACCURACY,
    "number": GENERIC,
}


def metric_of(name: str) -> Metric:
    """Return the entry of a metric; for a custom metric, one with its name as heading, of any number."""
    registered = registered_metrics().get(name)
    return registered or Metric(name=name, label=name, kind="value", direction="none", scope="run")


def table_metrics() -> Mapping[str, Metric]:
    """Return the metrics that have columns in tables, in the order of tables."""
    return {name: metric for name, metric in registered_metrics().items() if metric.label}


def in_tables(name: str) -> bool:
    """Return whether tables may have a column of a metric: always of one without an entry."""
    return metric_of(name).label != ""


def label_of(name: str) -> str:
    """Return the heading of a metric; for a custom metric, its name."""
    return metric_of(name).label or name


def format_of(name: str) -> NumberFormat:
    """Return how a metric is written; a custom metric may be any number."""
    return _FORMATS[metric_of(name).format]


def quantity_of(name: str, values: Collection[float] = ()) -> Quantity:
    """Return what kind of number a metric is.

    Args:
        name: the metric; a custom one may be any number.
        values: its values: a custom accuracy is a share if none is outside of 0 to 1.
    """
    is_custom = name not in registered_metrics()
    if is_custom and name.endswith("accuracy") and values and 0 <= min(values) <= max(values) <= 1:
        return "share"
    return metric_of(name).kind if in_tables(name) else "value"


def limit_of(name: str, values: Collection[float] = ()) -> float:
    """Return the largest possible difference between two values of a metric: of shares, or of differences of shares.

    Args:
        name: the metric.
        values: its values, as for `quantity_of`.
    """
    if quantity_of(name, values) == "share":
        return 1.0
    return 2.0 if metric_of(name).share_of else math.inf


def resolution_of(name: str, records: Iterable[RunRecord]) -> float:
    """Return what one sample makes of a share: the smallest step of its values; 0 where it has no known step."""
    counted = metric_of(name).share_of
    counts = [record.metrics[counted] for record in records if record.metrics.get(counted)]
    return 1 / min(counts) if counts else 0.0


def is_time(name: str) -> bool:
    """Whether a metric means nothing where runs shared the machine."""
    return metric_of(name).is_time and in_tables(name)
