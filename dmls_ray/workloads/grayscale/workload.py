"""The workload that compares implementations of turning images grey."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_ray.config.schema import Schema
from dmls_ray.records.training_metrics import TRAINING_METRICS
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.grayscale.config import GrayscaleConfig
from dmls_ray.workloads.grayscale.metrics import GRAYSCALE_METRICS
from dmls_ray.workloads.user_function.schema import UserFunctionConfig, function_schema

RECORDED_NAME = "dmls_ray.grayscale.trial:turn_grey"
"""Entry `train` of recorded configurations, from the time when this workload was called as a training function. Hashes
include it, so it never changes."""


class GrayscaleWorkload(Workload):
    """Implementations that turn images grey, timed and compared with a reference."""

    name = "grayscale"
    config = UserFunctionConfig
    entrypoint = "dmls_ray.workloads.grayscale.train:run_rank"
    metrics = (*TRAINING_METRICS, *GRAYSCALE_METRICS)

    @classmethod
    def claims(cls, config: Mapping[str, Any]) -> bool:
        return config.get("train") == RECORDED_NAME

    def schema(self) -> Schema:
        return function_schema(RECORDED_NAME, GrayscaleConfig)
