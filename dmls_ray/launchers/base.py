"""`Launcher`: how the ranks of one run are started on this machine.

A launcher is one module of this package, named like the launcher, that assigns an instance to `LAUNCHER`; see
`dmls_ray.config.launcher_names` for the constants that configurations need. The driver imports it, so it imports
PyTorch inside functions only.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.job_folder import JobFolder
from dmls_ray.records.outcome import Outcome

if TYPE_CHECKING:
    from torch.distributed import Store

    from dmls_ray.training.rank import ArtifactOptions, TrainFunction


@dataclass(frozen=True)
class Rendezvous:
    """Where a process that a launcher has started finds the other ranks."""

    rank: int
    world_size: int
    store: Store
    """Key-value store that all ranks of the run reach."""


class Launcher:
    """Starts a command for each run. A subclass overrides `command` and `rendezvous`, or `run`."""

    def infeasible_reason(self, config: RuntimeConfig) -> str:
        """Why this launcher cannot be used here, and the way out; empty if it can."""
        return ""

    def command(self, config: RuntimeConfig, program: list[str]) -> list[str]:
        """The command that starts the run.

        Args:
            config: the configuration of the run.
            program: arguments of Python that run `dmls_ray.launchers` in each process.
        """
        return [sys.executable, *program]

    def rendezvous(self, config: RuntimeConfig) -> Rendezvous:
        """Join the other ranks. Called in each process that `command` has started.

        Raises:
            Exception: the ranks cannot meet; the run fails with it.
        """
        raise NotImplementedError

    def run(
        self,
        folder: JobFolder,
        config: RuntimeConfig,
        *,
        train: TrainFunction,
        artifacts: ArtifactOptions | None,
        began: float,
    ) -> None:
        """Run the part of this process, and leave its result in the folder; by default, it is one rank.

        Args:
            folder: where events and results go.
            config: the configuration of the run.
            train: the training function.
            artifacts: files that the run leaves next to its record.
            began: time.perf_counter when the process started.
        """
        from torch.distributed import PrefixStore

        from dmls_ray.launchers.local_rank import rank_info
        from dmls_ray.training.error_to_outcome import failure, run_guarded
        from dmls_ray.training.process import process_group
        from dmls_ray.training.rank import RankInfo

        rank = RankInfo()
        try:
            meeting = self.rendezvous(config)
            rank = replace(rank, rank=meeting.rank)
            info = replace(rank_info(config, meeting.rank, artifacts), assigned_at=began)
            with folder.events(meeting.rank) as emit:
                with process_group(info, PrefixStore("run", meeting.store) if meeting.world_size > 1 else None):
                    result = run_guarded(train, config, info, emit)
                    folder.write_result(result)
        except Exception as error:  # noqa: BLE001 - a group that cannot be made is a result like any other
            result = failure(error, rank)
            folder.write_result(result)
        if result.outcome is not Outcome.OK and not result.is_symptom:
            # Other ranks may wait for this one in a collective; only the end of its process ends that.
            os._exit(1)
