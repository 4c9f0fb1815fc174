"""The check of a workload of another package, when the registry loads it."""

from __future__ import annotations

from typing import Any

from dmls_ray.config.fields import field_specs
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.model import RUN_FIELDS
from dmls_ray.records.stale import FIELD as CODE_FIELD
from dmls_ray.records.training_metrics import TRAINING_METRICS
from dmls_ray.workloads.base import Workload

RESERVED_FIELDS = ("train", "workload", CODE_FIELD)
"""Keys that name the workload of a recorded configuration and its code; no field may have one of these names."""


def find_mistake(name: str, loaded: Any) -> str:
    """Return what is wrong with a workload and the way out, or an empty text.

    Args:
        name: the name of its entry point.
        loaded: what its entry point refers to.
    """
    if not isinstance(loaded, type) or not issubclass(loaded, Workload):
        return "it is not a class that extends dmls_ray.workloads.base.Workload; name such a class"
    for attribute in ("name", "config", "entrypoint"):
        if not hasattr(loaded, attribute):
            return f"its class {loaded.__name__} has no {attribute}; set it"
    if loaded.name != name:
        return f"its class {loaded.__name__} has the name {loaded.name!r}; give the class and the entry point one name"
    config = loaded.config
    if not issubclass(config, RuntimeConfig) or not field_specs(config).keys().isdisjoint(RESERVED_FIELDS):
        return f"its config {config!r} has to extend RuntimeConfig, and may not have the fields {RESERVED_FIELDS}"
    for metric in loaded.metrics:
        if metric.name in RUN_FIELDS:
            return f"its metric {metric.name} has the name of an entry of every record; give it another name"
    rates = {metric.name for metric in (*loaded.metrics, *TRAINING_METRICS) if metric.kind == "rate"}
    if loaded.throughput not in (None, *rates):
        return f"its throughput {loaded.throughput!r} is no metric of kind rate; name one of {', '.join(sorted(rates))}"
    return ""
