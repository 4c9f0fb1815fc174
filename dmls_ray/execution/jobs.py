"""Jobs of the cluster: `JobFactory` makes them of runs, and `Search` decides which a search proposes, and how many run
at once; and the folder of a run's files.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dmls_ray.cluster.lane_plan import LaneCount
from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.resources import RankRequest, Resources, WorkerGroupSpec
from dmls_ray.config.axes import Range
from dmls_ray.config.grid import Plan, Run, configs_of
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import SearchSpace
from dmls_ray.execution.next_runs import NextRuns
from dmls_ray.execution.planning import minimizes
from dmls_ray.launchers import base as launchers
from dmls_ray.training.rank import ArtifactOptions
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import workload_of

if TYPE_CHECKING:
    from dmls_ray.cluster.tune.trainables import TuneJobSet


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
    near: Mapping[int, str] = field(default_factory=dict)
    """Block -> host on which earlier runs of it were measured."""

    @classmethod
    def of(cls, plan: Plan, resources: Resources, options: Options, folder: Path) -> JobFactory:
        """The factory of the jobs of a plan."""
        workload = workload_of(plan.fixed)
        return cls(resources, options, workload, folder, resources.holds_gpus(configs_of(plan.runs)))

    def create(self, run: Run) -> Job:
        """The job of a run. Its `skip` is the reason why the run is not feasible, or empty."""
        if skip := run.skip or self.infeasible_reason(run.config):
            return Job(run_id=run.run_id, trial_id=run.trial_id, config=cast(Any, run.config), skip=skip)
        config = run.seeded()
        return Job(
            run_id=run.run_id,
            trial_id=run.trial_id,
            block=run.repeat if self.options.is_timed else 0,
            near=self.near.get(run.repeat, ""),
            train=self.workload.entrypoint,
            config=config,
            device=config.device_for(self.resources.gpus),
            backend=config.backend_for(self.resources.gpus),
            identity=run.identity,
            artifacts=self._artifacts_of(run),
            prunable=self.options.search and self.options.scheduler != "none",
        )

    def infeasible_reason(self, config: Any, *, anywhere: bool = False) -> str:
        """Why a configuration cannot run, and the way out; empty if it can. Reasons of every cluster come first.

        Args:
            config: the configuration.
            anywhere: leave out what depends on the resources of this cluster.
        """
        if self.options.search and config.launcher != "ray":
            return f"a search stops runs through Ray's worker group; launcher={config.launcher} has none, use ray."
        if reason := self.workload.infeasible_reason(config) or launchers.infeasible_reason(config):
            return reason
        if anywhere:
            return ""
        return self.resources.infeasible_reason(
            config, oversubscribe=self.options.oversubscribe, holds_gpus=self.holds_gpus
        )

    def group_spec(self, jobs: Sequence[Job]) -> WorkerGroupSpec:
        """What the worker group must have for these runs."""
        configs = [job.config for job in jobs]
        device = "cuda" if any(job.device == "cuda" for job in jobs) else "cpu"
        # Other launchers start their ranks themselves.
        requests = {RankRequest.of(config): None for config in configs if config.launcher == "ray"}
        if not self.options.is_timed:
            requests[RankRequest(world_size=self._usable_ranks(jobs, device))] = None
        with_code = next((job for job in jobs if job.identity.code), None)
        entry = with_code.train if with_code else ""
        # A script is read by each run.
        is_imported = not entry.startswith("dmls_ray.")
        return WorkerGroupSpec(
            needs=tuple(requests),
            device=device,
            oversubscribe=self.options.oversubscribe,
            data=tuple((self.workload.name, *arguments) for arguments in self.workload.cached_data(configs)),
            user_code_entry=entry,
            preload=",".join(filter(None, (self.options.preload, self.workload.libraries(configs[0])))),
            user_code=str(with_code.identity.code) if with_code and is_imported else "",
        )

    def _usable_ranks(self, jobs: Sequence[Job], device: str) -> int:
        """Number of ranks that runs which share them can use: all of the cluster, if there are enough runs."""
        threads = max(job.config.threads_per_rank or 1 for job in jobs)
        capacity = self.resources.gpus if device == "cuda" else self.resources.cores // threads
        sizes = [job.config.world_size for job in jobs]
        if not self.options.uses_searcher:
            capacity = min(capacity, sum(sizes))
        return max(*sizes, capacity)

    def most_lanes(self, jobs: Sequence[Job]) -> LaneCount:
        """How many lanes there may be."""
        # Other launchers start their ranks on this machine; and runs without times share all ranks.
        if not self.options.is_timed or any(job.config.launcher != "ray" for job in jobs):
            return 1
        return self.options.lanes

    def _artifacts_of(self, run: Run) -> ArtifactOptions | None:
        """The files that a run writes into its folder; None if it writes none."""
        options, is_traced = self.options, run.repeat < self.options.trace
        wanted = options.checkpoints or options.save_weights or is_traced or self.workload.keeps_output
        # Machines that write to a URI share no folder.
        if not wanted or options.is_remote:
            return None
        folder = run_folder(self.folder, run.run_id)
        return ArtifactOptions(
            folder=str(folder), checkpoints=options.checkpoints, weights=options.save_weights, trace=is_traced
        )


class Search:
    """A search over the runs of a plan, or over a space, which a searcher of Ray Tune's proposes from.

    For a space, the plan has examples only. They show beforehand whether anything is feasible.

    Args:
        state: the plan or the space, and what the searcher proposed in earlier calls.

    Raises:
        ConfigError: there is no such searcher, what it needs is not installed, or it cannot go on with what was begun.
    """

    def __init__(self, state: NextRuns) -> None:
        self._state, self._options, self._space = state, state.options, state.space
        mode = "min" if minimizes(self._options) else "max"
        self._goal = {"metric": self._options.searched_metric, "mode": mode}
        self._runs: dict[str, Run] = {}
        """The runs that were proposed in this call."""
        self._searcher: Any = None
        self._metrics: dict[str, float | None] = {}
        """By earlier run: its metric."""
        if self._space is not None:
            from dmls_ray.cluster.tune.search import add_earlier_runs, make_searcher

            # With the same seed, the searcher would repeat its first proposals.
            seed = self._options.order_seed + len(state.proposed)
            self._searcher = make_searcher(self._options.searcher, self._space, **self._goal, seed=seed)
            self._metrics = add_earlier_runs(self._searcher, state.answered, self._options.searched_metric)

    def trials(self, trials: TuneJobSet, make: JobFactory, jobs: Sequence[Job], ranks: int) -> TuneJobSet:
        """The trials that Tune runs, listed or proposed, as many at once as there are ranks for."""
        from dmls_ray.cluster.tune.search import make_scheduler

        if self._space is not None:
            trials = replace(
                trials,
                job_of=functools.partial(_job_of_proposal, self._space, make),
                run_ids=None,
                samples=self._state.left_to_propose,
                searcher=self._searcher,
                earlier=self._metrics,
            )
        at_once = runs_at_once(jobs, ranks)
        epochs = [run.values.get("epochs") for run in self._state.plan.runs]
        proposed = self._space.free.get("epochs") if self._space else None
        if isinstance(proposed, Range):
            epochs.append(round(proposed.high))
        most_epochs = max((item for item in epochs if isinstance(item, int)), default=100)
        scheduler = make_scheduler(self._options.scheduler, **self._goal, max_epochs=most_epochs)
        return replace(trials, at_once=at_once, scheduler=scheduler, metric=self._options.searched_metric)

    def run_of(self, proposed: Mapping[str, Any]) -> Run:
        """The run of a proposal."""
        assert self._space is not None
        run = self._space.run_of(proposed, order=len(self._state.answered) + len(self._runs))
        return self._runs.setdefault(run.run_id, run)


def runs_at_once(jobs: Sequence[Job], ranks: int) -> int:
    """How many runs may share so many ranks."""
    return max(1, ranks // min(job.config.world_size for job in jobs))


def _job_of_proposal(space: SearchSpace, make: JobFactory, proposed: Mapping[str, Any]) -> Job:
    """The job of what a searcher proposed; called in the driver and in Tune's actors."""
    return make.create(space.run_of(proposed))


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
