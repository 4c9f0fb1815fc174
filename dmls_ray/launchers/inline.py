"""Launcher `inline`: the only rank of a run is the process itself."""

from __future__ import annotations

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.base import Launcher, rank_info
from dmls_ray.launchers.job_folder import JobFolder, LaunchedJob
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import ArtifactOptions, Emit, TrainFunction
from dmls_ray.util.errors import ConfigError

POSITION = 1
ONE_PROCESS = True


def run_inline(
    config: RuntimeConfig,
    *,
    train: TrainFunction | None = None,
    emit: Emit = lambda event: None,
    artifacts: ArtifactOptions | None = None,
) -> RankResult:
    """Run a configuration of world size 1 in this process; returns the result of its only rank.

    Raises:
        ConfigError: the world size is not 1.
    """
    from dmls_ray.training.error_to_outcome import run_guarded
    from dmls_ray.workloads.registry import default_entrypoint

    if config.world_size != 1:
        raise ConfigError(f"world_size={config.world_size} needs a process a rank; inline runs world_size 1.")
    return run_guarded(train or default_entrypoint(), config, rank_info(config, 0, artifacts), emit)


class Inline(Launcher):
    """Starts one interpreter, which is the rank."""

    def run(self, folder: JobFolder, job: LaunchedJob, *, train: TrainFunction, began: float) -> None:
        with folder.events(0) as emit:
            folder.write_result(run_inline(job.config, train=train, artifacts=job.artifacts, emit=emit))


LAUNCHER = Inline()
