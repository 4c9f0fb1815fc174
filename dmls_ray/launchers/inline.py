"""One rank, in this process."""

from __future__ import annotations

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.local_rank import rank_info
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.error_to_outcome import run_guarded
from dmls_ray.training.rank import ArtifactOptions, Emit, TrainFunction
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import default_entrypoint


def run_inline(
    config: RuntimeConfig,
    *,
    train: TrainFunction | None = None,
    emit: Emit = lambda event: None,
    artifacts: ArtifactOptions | None = None,
) -> RankResult:
    """Run a trial of world size 1 here; returns its one rank's result, with its `outcome`.

    Raises:
        ConfigError: the world size is not 1.
    """
    if config.world_size != 1:
        raise ConfigError(f"world_size={config.world_size} needs a process a rank; inline runs world_size 1.")
    return run_guarded(train or default_entrypoint(), config, rank_info(config, 0, artifacts), emit)
