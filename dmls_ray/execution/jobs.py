"""`JobFactory`: from runs of a plan to jobs of the cluster; and the folder of a run's files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.resources import Resources
from dmls_ray.config.grid import Plan, Run, configs_of
from dmls_ray.config.options import Options
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers import base as launchers
from dmls_ray.training.rank import ArtifactOptions
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import workload_of


@dataclass(frozen=True)
class JobFactory:
    """Makes jobs of runs: in the driver and, for runs that a searcher proposes, in Tune's actors."""

    resources: Resources
    options: Options
    workload: Workload
    folder: Path
    """The results folder."""
    holds_gpus: bool
    """Whether each rank of the worker group holds a GPU; see `Resources.holds_gpus`."""

    @classmethod
    def of(cls, plan: Plan, resources: Resources, options: Options, folder: Path) -> JobFactory:
        """The factory of the jobs of a plan."""
        workload = workload_of(plan.runs[0].values)
        return cls(resources, options, workload, folder, resources.holds_gpus(configs_of(plan.runs)))

    def create(self, run: Run) -> Job:
        """The job of a run. Its `skip` is the reason why the run is not feasible, or empty."""
        if skip := run.skip or self.infeasible_reason(run.config):
            # Conflicting values have no configuration.
            config = cast(RuntimeConfig, run.config)
            return Job(run_id=run.run_id, trial_id=run.trial_id, config=config, skip=skip)
        config = run.seeded()
        return Job(
            run_id=run.run_id,
            trial_id=run.trial_id,
            train=self.workload.entrypoint,
            config=config,
            device=config.device_for(self.resources.gpus),
            backend=config.backend_for(self.resources.gpus),
            identity=run.identity,
            artifacts=self._artifacts_of(run),
            prunable=self.options.mode == "search" and self.options.scheduler != "none",
        )

    def infeasible_reason(self, config: Any, *, anywhere: bool = False) -> str:
        """Why a configuration cannot run, and the way out; empty if it can. Reasons of every cluster come first.

        Args:
            config: the configuration.
            anywhere: leave out what depends on the resources of this cluster.
        """
        if self.options.mode == "search" and config.launcher != "ray":
            return f"mode=search stops runs through Ray's worker group; launcher={config.launcher} has none, use ray."
        if self.options.isolation == "per_run" and config.machines is not None:
            return (
                f"isolation=per_run leaves it to Ray Train where ranks go, and machines={config.machines} says where; "
                "use isolation group."
            )
        if reason := self.workload.infeasible_reason(config) or launchers.infeasible_reason(config):
            return reason
        if anywhere:
            return ""
        return self.resources.infeasible_reason(
            config, oversubscribe=self.options.oversubscribe, holds_gpus=self.holds_gpus
        )

    def _artifacts_of(self, run: Run) -> ArtifactOptions | None:
        """The files that a run writes into its folder; None if it writes none."""
        options, is_traced = self.options, run.repeat < self.options.trace
        wanted = options.checkpoints or options.save_weights or is_traced
        # Machines that write to a URI share no folder.
        if not wanted or options.is_remote:
            return None
        folder = run_folder(self.folder, run.run_id)
        return ArtifactOptions(
            folder=str(folder), checkpoints=options.checkpoints, weights=options.save_weights, trace=is_traced
        )


CHECKPOINT_FILES = "*.rank-*.pt"
"""The files in `checkpoints/` that ranks write; a user-defined function may have others there."""


def run_folder(results: Path, run_id: str) -> Path:
    """Return the folder of a run's files in a local results folder."""
    return results.resolve() / "runs" / run_id


def remove_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a run whose record is kept: until then, it may have to be resumed.

    Args:
        folder: the folder of the run.
    """
    checkpoints = folder / "checkpoints"
    if folder.is_symlink() or checkpoints.is_symlink():
        return  # it may lead anywhere
    with suppress(OSError):  # those that stay take space, and do no other harm
        for path in checkpoints.glob(CHECKPOINT_FILES):
            path.unlink()
        checkpoints.rmdir()
