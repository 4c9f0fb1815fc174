"""The workload that compares implementations of turning images grey."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dmls_ray.config.fields import field_specs
from dmls_ray.config.runtime import Schema
from dmls_ray.records.codec import check_field_values
from dmls_ray.records.metrics import TRAINING_METRICS, Metric
from dmls_ray.workloads.base import Workload, files_named
from dmls_ray.workloads.grayscale.config import RECORDED_NAME, GrayscaleConfig
from dmls_ray.workloads.user_function.schema import UserFunctionConfig, function_schema

GRAYSCALE_METRICS: tuple[Metric, ...] = (
    Metric(
        name="pass_ms", label="ms", kind="amount", direction="min", scope="run", is_time=True, is_compared=True,
        doc="Median of the timed passes over all images.",
    ),
    Metric(
        name="gb_per_s", label="GB/s", kind="rate", direction="max", scope="run", is_time=True, is_compared=True,
        doc="Least bytes that a pass reads and writes, per second of pass_ms (10^9 bytes).",
    ),
    Metric(
        name="copy_gb_per_s", label="copy GB/s", kind="rate", direction="max", scope="run", is_time=True,
        is_compared=True, doc="Bandwidth of a copy of as many bytes, timed in turn with the passes.",
    ),
    Metric(
        name="of_copy", label="of a copy", kind="ratio", direction="max", scope="run", format="ratio", is_time=True,
        is_compared=True, doc="gb_per_s relative to copy_gb_per_s, by pairs of passes.",
    ),
    Metric(
        name="to_device_ms", label="to device ms", kind="amount", direction="min", scope="run", format="seconds",
        is_time=True, is_compared=True, doc="Copy of the images to the GPU.",
    ),
    Metric(
        name="from_device_ms", label="from device ms", kind="amount", direction="min", scope="run", format="seconds",
        is_time=True, is_compared=True, doc="Copy of the grey levels from the GPU.",
    ),
    Metric(
        name="levels_apart", label="levels apart", kind="value", direction="min", scope="run", format="whole",
        is_compared=True, doc="Largest difference from the float64 reference, in grey levels.",
    ),
)  # fmt: skip
"""In the order of the table's columns."""


class GrayscaleWorkload(Workload):
    """Implementations that turn images grey, timed and compared with a reference."""

    name = "grayscale"
    config = UserFunctionConfig
    fixed: ClassVar[Mapping[str, Any]] = {"train": RECORDED_NAME}
    entrypoint = "dmls_ray.workloads.grayscale.train:run_rank"
    metrics = (*TRAINING_METRICS, *GRAYSCALE_METRICS)
    presentation = "dmls_ray.workloads.grayscale.presentation:GrayscalePresentation"
    questions = "dmls_ray.workloads.grayscale.presentation:GrayscaleQuestions"

    def schema(self) -> Schema:
        return function_schema(RECORDED_NAME, GrayscaleConfig)

    def check_recorded(self, config: Mapping[str, Any]) -> None:
        check_field_values({**self.specs(), **field_specs(GrayscaleConfig)}, config)

    def data_sets(self, config: UserFunctionConfig) -> Mapping[str, tuple[str]]:
        return files_named({"pictures": config.values.get("pictures")})


WORKLOAD = GrayscaleWorkload
