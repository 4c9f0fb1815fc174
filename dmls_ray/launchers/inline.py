"""Launcher `inline`: the only rank of a run is the process itself."""

from __future__ import annotations

from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.base import Launcher, Rendezvous, rank_info
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import ArtifactOptions, Emit, TrainFunction
from dmls_ray.util.errors import ConfigError


def run_inline(
    config: RuntimeConfig,
    *,
    train: TrainFunction | None = None,
    emit: Emit = lambda event: None,
    identity: Identity | None = None,
    artifacts: ArtifactOptions | None = None,
) -> RankResult:
    """Run a configuration of world size 1 in this process; returns the result of its only rank.

    Args:
        config: the configuration.
        train: its training function.
        emit: takes the events of the run.
        identity: the code and the data of the run.
        artifacts: files that the run leaves next to its result.

    Raises:
        ConfigError: the world size is not 1.
    """
    from dmls_ray.training.error_to_outcome import run_guarded
    from dmls_ray.workloads.registry import default_entrypoint

    if config.world_size != 1:
        raise ConfigError(f"world_size={config.world_size} needs a process a rank; inline runs world_size 1.")
    train = train or default_entrypoint()
    rank = rank_info(config, 0, identity=identity, artifacts=artifacts)
    return run_guarded(train, config, rank, emit)


class Inline(Launcher):
    """Starts one interpreter, which is the rank."""

    def rendezvous(self, config: RuntimeConfig) -> Rendezvous:
        return Rendezvous(0, None)


LAUNCHER = Inline()
