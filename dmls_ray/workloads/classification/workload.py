"""The workload that trains image classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_ray.config.schema import Schema
from dmls_ray.records.training_metrics import LEARNED, TRAINING_METRICS
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.classification.config import DEFAULTS, TrialConfig, trial_schema


class ClassificationWorkload(Workload):
    """Training of image classifiers, configured by `TrialConfig`."""

    name = "classification"
    config = TrialConfig
    entrypoint = "dmls_ray.training.engine:train_rank"
    metrics = TRAINING_METRICS
    throughput = "images_per_s"
    epoch_metrics = LEARNED

    @classmethod
    def claims(cls, config: Mapping[str, Any]) -> bool:
        return "train" not in config and config.get("workload", cls.name) == cls.name

    def schema(self) -> Schema:
        return trial_schema()

    def factors(self, config: Mapping[str, Any]) -> dict[str, Any]:
        # Fields of a newer version, or of a published report, come last.
        factors = {**DEFAULTS, **config}
        if factors["batch_per_rank"] is not None:
            factors["global_batch"] = factors["batch_per_rank"] * factors["world_size"] * factors["accum_steps"]
        return factors
