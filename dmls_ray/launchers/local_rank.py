"""Device and backend of each rank of a run on this machine."""

from __future__ import annotations

import socket

import torch

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.training.rank import ArtifactOptions, RankInfo
from dmls_ray.util.errors import ClusterError


def rank_info(config: RuntimeConfig, rank: int, artifacts: ArtifactOptions | None = None) -> RankInfo:
    """A rank of a run on this machine, on the GPU of its own number where it trains on GPUs.

    Raises:
        ClusterError: there are fewer GPUs than ranks, or the device or the launcher cannot do what is asked for.
    """
    gpus = torch.cuda.device_count()
    device = config.device_for(gpus)
    if device == "cuda" and config.world_size > gpus:
        raise ClusterError(
            f"world_size={config.world_size} needs {config.world_size} GPUs; this machine has {gpus}. "
            "Lower --world-size or pass --device cpu."
        )
    if reason := config.infeasible_reason(device):
        raise ClusterError(reason)
    return RankInfo(
        rank=rank,
        world_size=config.world_size,
        device=f"cuda:{rank}" if device == "cuda" else "cpu",
        backend=config.backend_for(gpus) if config.world_size > 1 else None,
        machine=socket.gethostname(),
        artifacts=artifacts,
    )
