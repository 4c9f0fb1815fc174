"""How the metrics of runs are headed, written and averaged, by their entries in the registry."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from dmls_ray.analysis.stats.formatting import ACCURACY, GENERIC, INTEGER, MEMORY, RATE, RATIO, SECONDS, NumberFormat
from dmls_ray.analysis.stats.intervals import Quantity
from dmls_ray.records.metric import Metric
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


def table_metrics() -> Mapping[str, Metric]:
    """Return the metrics that have columns in tables, in the order of tables."""
    return {name: metric for name, metric in registered_metrics().items() if metric.label}


def in_tables(name: str) -> bool:
    """Return whether tables may have a column of a metric: always of one without an entry."""
    metric = registered_metrics().get(name)
    return metric is None or metric.label != ""


def label_of(name: str) -> str:
    """Return the heading of a metric; for a custom metric, its name."""
    metric = registered_metrics().get(name)
    return metric.label or name if metric else name


def format_of(name: str) -> NumberFormat:
    """Return how a metric is written; a custom metric may be any number."""
    metric = registered_metrics().get(name)
    return _FORMATS[metric.format] if metric else GENERIC


def quantity_of(name: str, values: Collection[float] = ()) -> Quantity:
    """Return what kind of number a metric is.

    Args:
        name: the metric; a custom one may be any number.
        values: its values: a custom accuracy is a share if none is outside of 0 to 1.
    """
    metric = registered_metrics().get(name)
    if metric is None and name.endswith("accuracy") and values and all(0 <= value <= 1 for value in values):
        return "share"
    return metric.kind if metric and metric.label else "value"


def limit_of(name: str, values: Collection[float] = ()) -> float:
    """Return the largest possible difference between two values of a metric: of shares, or of differences of shares.

    Args:
        name: the metric.
        values: its values, as for `quantity_of`.
    """
    if quantity_of(name, values) == "share":
        return 1.0
    metric = registered_metrics().get(name)
    return 2.0 if metric and metric.share_of else math.inf


def resolution_of(name: str, records: Iterable[RunRecord]) -> float:
    """Return what one sample makes of a share: the smallest step of its values; 0 where it has no known step."""
    metric = registered_metrics().get(name)
    if metric is None or not metric.share_of:
        return 0.0
    counts = [count for record in records if (count := record.metrics.get(metric.share_of))]
    return 1 / min(counts) if counts else 0.0


def is_time(name: str) -> bool:
    """Whether a metric means nothing where runs shared the machine."""
    metric = registered_metrics().get(name)
    return metric is not None and metric.is_time and metric.label != ""
