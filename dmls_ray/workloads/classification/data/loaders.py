"""The two loaders: `resident` keeps all samples on the device, `dataloader` decodes them in worker processes."""

from __future__ import annotations

import torch

from dmls_ray.training.rank import RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.batches import Loader
from dmls_ray.workloads.classification.data.resident_loader import ResidentLoader
from dmls_ray.workloads.classification.data.worker_loader import WorkerLoader


def make_loader(config: TrialConfig, rank: RankInfo, device: torch.device) -> Loader:
    """The configured loader.

    Raises:
        DataError: the data are missing or unreadable.
    """
    loader = ResidentLoader if config.loader == "resident" else WorkerLoader
    return loader(config, rank, device)
