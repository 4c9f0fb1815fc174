"""`Search`: which runs a search proposes, how many run at once, and what earlier runs reported."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.resources import Resources
from dmls_ray.config.grid import Run
from dmls_ray.config.search_space import Range, SearchSpace
from dmls_ray.execution.jobs import JobFactory
from dmls_ray.execution.planning import FolderState, search_minimizes

if TYPE_CHECKING:
    from dmls_ray.cluster.tune.trainables import TuneJobSet


class Search:
    """A search over the runs of a plan, or over a space, which a searcher of Ray Tune's proposes from.

    For a space, the plan has examples only. They show beforehand whether anything is feasible.

    Args:
        state: the plan or the space, and what the searcher proposed in earlier calls.

    Raises:
        ConfigError: there is no such searcher, what it needs is not installed, or it cannot go on with what was begun.
    """

    def __init__(self, state: FolderState) -> None:
        self._state, self._options, self._space = state, state.options, state.space
        mode = "min" if search_minimizes(self._options) else "max"
        self._goal = {"metric": self._options.metric, "mode": mode}
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
            self._metrics = add_earlier_runs(self._searcher, state.answered, self._options.metric)

    def ranks(self, jobs: Sequence[Job], resources: Resources, device: str) -> int:
        """Number of ranks that the search can use: all of the cluster, if it has enough runs."""
        threads = max(job.config.threads_per_rank for job in jobs)
        capacity = resources.gpus if device == "cuda" else resources.cores // threads
        sizes = [job.config.world_size for job in jobs]
        if self._space is None:
            capacity = min(capacity, sum(sizes))
        return max(*sizes, capacity)

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
        at_once = max(1, ranks // min(job.config.world_size for job in jobs))
        scheduler = make_scheduler(self._options.scheduler, **self._goal, max_epochs=self._max_epochs)
        return replace(trials, at_once=at_once, scheduler=scheduler, metric=self._options.metric)

    def run_of(self, proposed: Mapping[str, Any]) -> Run:
        """The run of a proposal."""
        assert self._space is not None
        run = self._space.run_of(proposed, order=len(self._state.answered) + len(self._runs))
        return self._runs.setdefault(run.run_id, run)

    @property
    def _max_epochs(self) -> int:
        """How many epochs a run may have."""
        epochs = [run.values.get("epochs") for run in self._state.plan.runs]
        proposed = self._space.free.get("epochs") if self._space else None
        if isinstance(proposed, Range):
            epochs.append(round(proposed.high))
        return max((item for item in epochs if isinstance(item, int)), default=100)


def _job_of_proposal(space: SearchSpace, make: JobFactory, proposed: Mapping[str, Any]) -> Job:
    """The job of what a searcher proposed; called in the driver and in Tune's actors."""
    return make.create(space.run_of(proposed))
