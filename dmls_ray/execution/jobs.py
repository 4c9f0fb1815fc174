"""What a run of the plan is to the cluster: which function is called, on what, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.resources import Resources
from dmls_ray.config.grid import Run
from dmls_ray.config.options import Options
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.command import unavailable
from dmls_ray.training.rank import ArtifactOptions
from dmls_ray.workloads.registry import workload_of


@dataclass(frozen=True)
class JobFactory:
    """Makes jobs of runs, in the driver and, where a searcher proposes them, in Tune's actors."""

    resources: Resources
    options: Options
    folder: Path
    """The results folder."""

    def create(self, run: Run) -> Job:
        """The job of a run; its `skip` says why it is not feasible."""
        if skip := run.skip or self.infeasible_reason(run.config):
            # Of what is skipped nobody looks at more, and values that do not go together make no configuration.
            return Job(
                run_id=run.run_id, trial_id=run.trial_id, train="", config=cast(RuntimeConfig, run.config), device="",
                backend="", skip=skip,
            )  # fmt: skip
        config = run.seeded()
        return Job(
            run_id=run.run_id,
            trial_id=run.trial_id,
            train=workload_of(run.values).entrypoint,
            config=config,
            device=self.resources.device_of(config),
            backend=self.resources.backend_of(config),
            artifacts=self._artifacts_of(run),
            prunable=self.options.mode == "search" and self.options.scheduler != "none",
        )

    def infeasible_reason(self, config: Any) -> str:
        """Why a configuration is not feasible here; empty where it is."""
        # First what no cluster can mend.
        return self.unavailable(config) or self.resources.infeasible_reason(
            config, oversubscribe=self.options.oversubscribe
        )

    def unavailable(self, config: Any) -> str:
        """Why its launcher or its placement cannot be had; empty where it can."""
        if self.options.mode == "search" and config.launcher != "ray":
            return (
                f"mode=search stops runs through Ray's worker group, and launcher={config.launcher} has none; use ray."
            )
        if self.options.isolation == "per_run" and config.machines is not None:
            return (
                f"isolation=per_run leaves it to Ray Train where ranks go, and machines={config.machines} says where; "
                "use isolation group."
            )
        return unavailable(config)

    def _artifacts_of(self, run: Run) -> ArtifactOptions | None:
        """What the run is to leave in a folder of its own."""
        profiled = run.config is not None and workload_of(run.values).writes_files(run.config)
        if not (self.options.checkpoints or self.options.save_weights or profiled):
            return None
        if self.options.is_remote:
            return None  # ranks write files, on machines that share none
        folder = self.folder.resolve() / "runs" / run.run_id
        return ArtifactOptions(
            folder=str(folder), checkpoints=self.options.checkpoints, weights=self.options.save_weights
        )
