"""`Search`: which runs a search proposes, how many run at once, and what earlier runs reported."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dmls_ray.config.grid import Plan, Run
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import Range, SearchSpace
from dmls_ray.execution.jobs import JobFactory
from dmls_ray.execution.planning import search_minimizes
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import LEARNED
from dmls_ray.util.errors import ClusterError
from dmls_ray.workloads.registry import is_compared

if TYPE_CHECKING:
    from dmls_ray.cluster.messages import Job
    from dmls_ray.cluster.resources import Resources
    from dmls_ray.cluster.tune.trainables import TuneJobSet


@dataclass
class Search:
    """A search over the runs of a plan, or over a space, which a searcher of Ray Tune's proposes from.

    For a space, the plan has examples only. They show beforehand whether anything is feasible.

    Raises:
        ConfigError: there is no such searcher, what it needs is not installed, or it cannot go on with what was begun.
    """

    plan: Plan
    options: Options
    space: SearchSpace | None
    before: Sequence[RunRecord]
    """Runs that the searcher proposed in earlier calls."""
    earlier: list[RunRecord] = field(init=False, default_factory=list)
    """Those with an answer; others take the place of failed ones."""
    _runs: dict[str, Run] = field(init=False, default_factory=dict)
    _searcher: Any = None
    _metrics: dict[str, float | None] = field(init=False, default_factory=dict)
    """By earlier run: its metric."""
    _noted: bool = False

    def __post_init__(self) -> None:
        if self.space is None:
            return
        from dmls_ray.cluster.tune.search import add_earlier_runs, make_searcher

        self.earlier = [record for record in self.before if record.outcome.is_answer()]
        # With the same seed, the searcher would repeat its first proposals.
        seed = self.options.order_seed + len(self.before)
        self._searcher = make_searcher(self.options.searcher, self.space, **self._goal, seed=seed)
        self._metrics = add_earlier_runs(self._searcher, self.earlier, self.options.metric)

    @property
    def left(self) -> int:
        """How many runs a searcher is still to propose."""
        assert self.space is not None
        return self.space.at_most(self.options.samples) - len(self.earlier)

    def examples(self, judged: Plan) -> list[Run]:
        """The feasible examples of the space.

        Raises:
            ClusterError: nothing is.
        """
        feasible = [run for run in judged.runs if not run.skip]
        if not feasible:
            raise ClusterError(f"Nothing of what can be proposed is feasible: {judged.runs[0].skip}")
        return feasible

    def ranks(self, jobs: Sequence[Job], resources: Resources, device: str) -> int:
        """Number of ranks that the search can use: all of the cluster, if it has enough runs."""
        threads = max(job.config.threads_per_rank for job in jobs)
        capacity = resources.gpus if device == "cuda" else resources.cores // threads
        sizes = [job.config.world_size for job in jobs]
        return max(*sizes, capacity if self.space else min(capacity, sum(sizes)))

    def trials(self, trials: TuneJobSet, make: JobFactory, jobs: Sequence[Job], ranks: int) -> TuneJobSet:
        """The trials that Tune runs, listed or proposed, as many at once as there are ranks for."""
        from dmls_ray.cluster.tune.search import make_scheduler

        if self.space is not None:
            job_of = functools.partial(_job_of_proposal, self.space, make)
            searcher, earlier = self._searcher, self._metrics
            trials = replace(trials, job_of=job_of, run_ids=None, samples=self.left, searcher=searcher, earlier=earlier)
        at_once = max(1, ranks // min(job.config.world_size for job in jobs))
        scheduler = make_scheduler(self.options.scheduler, **self._goal, max_epochs=self._max_epochs)
        return replace(trials, at_once=at_once, scheduler=scheduler, metric=self.options.metric)

    def run_of(self, proposed: Mapping[str, Any]) -> Run:
        """The run of a proposal."""
        assert self.space is not None
        run = self.space.run_of(proposed, order=len(self.earlier) + len(self._runs))
        return self._runs.setdefault(run.run_id, run)

    def missing_metric_note(self, record: RunRecord) -> str:
        """A note, once, that a run which ended ok did not report the metric of the search."""
        if self._noted or record.outcome is not Outcome.OK or self.options.metric in record.metrics:
            return ""
        self._noted = True
        reported = [name for name in record.metrics if name in LEARNED or is_compared(name)]
        return (
            f"metric={self.options.metric} was not reported by this run, so no run can be stopped by it; reported "
            f"metrics: {', '.join(reported) or 'none'}."
        )

    @property
    def _goal(self) -> dict[str, str]:
        """What searchers and schedulers go by."""
        return {"metric": self.options.metric, "mode": "min" if search_minimizes(self.options) else "max"}

    @property
    def _max_epochs(self) -> int:
        """How many epochs a run may have."""
        epochs = [run.values.get("epochs") for run in self.plan.runs]
        proposed = self.space.free.get("epochs") if self.space else None
        if isinstance(proposed, Range):
            epochs.append(round(proposed.high))
        return max((item for item in epochs if isinstance(item, int)), default=100)


def _job_of_proposal(space: SearchSpace, make: JobFactory, proposed: Mapping[str, Any]) -> Job:
    """The job of what a searcher proposed; called in the driver and in Tune's actors."""
    return make.create(space.run_of(proposed))


def proposed_before(space: SearchSpace, records: Iterable[RunRecord]) -> list[RunRecord]:
    """The records of runs that a searcher proposed from this space, with the present code and data."""
    proposed = [record for record in records if record.proposed and space.contains(record.proposed)]
    return [record for record in proposed if space.run_of(record.proposed).run_id == record.run_id]
