"""The workload that compares implementations of turning images grey."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_ray.config.schema import Schema
from dmls_ray.records.training_metrics import TRAINING_METRICS
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.grayscale.config import RECORDED_NAME, GrayscaleConfig
from dmls_ray.workloads.grayscale.metrics import GRAYSCALE_METRICS
from dmls_ray.workloads.user_function.schema import UserFunctionConfig, function_schema


class GrayscaleWorkload(Workload):
    """Implementations that turn images grey, timed and compared with a reference."""

    name = "grayscale"
    config = UserFunctionConfig
    entrypoint = "dmls_ray.workloads.grayscale.train:run_rank"
    metrics = (*TRAINING_METRICS, *GRAYSCALE_METRICS)
    presentation = "dmls_ray.workloads.grayscale.presentation:GrayscalePresentation"

    @classmethod
    def claims(cls, config: Mapping[str, Any]) -> bool:
        return config.get("train") == RECORDED_NAME

    def schema(self) -> Schema:
        return function_schema(RECORDED_NAME, GrayscaleConfig)


WORKLOAD = GrayscaleWorkload
