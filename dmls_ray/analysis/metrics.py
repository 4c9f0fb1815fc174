"""How the metrics of runs are headed, written and averaged, by their entries in the registry.

Of memory, also which number stands for it in tables, sentences, figures and advice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from dmls_ray.analysis.stats.formatting import ACCURACY, GENERIC, INTEGER, RATE, RATIO, SECONDS, NumberFormat
from dmls_ray.analysis.stats.formatting import MEMORY as MEMORY_FORMAT
from dmls_ray.analysis.stats.intervals import Quantity
from dmls_ray.records.metrics import TRAINING_METRICS, Metric
from dmls_ray.records.model import RunRecord
from dmls_ray.workloads.registry import metric_direction, registered_metrics

_FORMATS: Mapping[str, NumberFormat] = {
    "seconds": SECONDS,
    "ratio": RATIO,
    "rate": RATE,
    "memory": MEMORY_FORMAT,
    "whole": INTEGER,
    "accuracy": ACCURACY,
    "number": GENERIC,
}


_CUSTOM = Metric(name="", kind="value", direction="none", scope="epoch", interval=True, family="custom")


def metric_of(name: str) -> Metric:
    """Return the entry of a metric; for a custom metric, one of any number, without name and label."""
    return registered_metrics().get(name, _CUSTOM)


def table_metrics() -> Mapping[str, Metric]:
    """Return the metrics that have columns in tables, in the order of tables."""
    return {name: metric for name, metric in registered_metrics().items() if metric.label}


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
    return metric_of(name).kind


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
    return metric_of(name).is_time


def drifts(name: str) -> bool:
    """Whether the state of the machine may change a metric from one session to the next.

    So do times, and the memory of processes, which may serve all runs of a session. A result of training follows from
    seed, code and data. What else a function reports may be either.
    """
    if name not in registered_metrics():
        return metric_direction(name) == "none"  # neither a loss nor an accuracy
    return is_time(name) or name == "peak_mem_mib"


MEMORY_METRICS: Mapping[str, str] = {
    "tensor_mem_mib": "tensor memory",
    "device_mem_mib": "allocated memory of the GPU",
    "host_mem_mib": "growth of the resident set",
}
"""Metric -> its words in a sentence; the first one that most trials of a table have stands for their memory."""

MEMORY_KINDS = tuple(metric.name for metric in TRAINING_METRICS if metric.part_of == "tensor_mem_mib")
"""The parts of tensor_mem_mib."""


def is_exact(name: str) -> bool:
    """Whether a metric is the same in every repeat, so that one run says what it is."""
    return metric_of(name).is_exact


EQUAL_MEMORY = 0.02
"""Below this share a difference in memory is of no use, however sure it is."""
EQUAL_HOST_MIB = 4.0
"""Below this a difference in host_mem_mib is of no use: repeats of one small model differ by up to 2 MiB."""


def hardly_differs(sizes: Sequence[float], metric: str) -> bool:
    """Whether these sizes in MiB, of a metric of memory, are about the same; False without any."""
    noise = EQUAL_HOST_MIB if metric == "host_mem_mib" else 0.0
    return len(sizes) > 0 and max(sizes) - min(sizes) < max(EQUAL_MEMORY * min(sizes), noise)
