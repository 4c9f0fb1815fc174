"""The runs of one call on their way from the plan to the store: what is feasible, Ray around them, a record of each."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dmls_ray.errors import ClusterError, WorkerGroupError
from dmls_ray.jobs import Jobs
from dmls_ray.live import View
from dmls_ray.machine import describe_git, describe_machine, describe_versions, load_average
from dmls_ray.options import Options
from dmls_ray.plan import Plan, Run
from dmls_ray.preparation import prepare
from dmls_ray.record import EpochRecord, Outcome, RunRecord
from dmls_ray.space import Space, proposed_before
from dmls_ray.store import Store

if TYPE_CHECKING:
    from dmls_ray.cluster.messages import Job

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Execution:
    """One call's runs on their way from the plan to the store."""

    plan: Plan
    options: Options
    store: Store
    view: View
    space: Space | None = None
    """What a searcher of Tune's proposes from; the plan then has examples of it."""
    by_id: dict[str, Run] = field(default_factory=dict)
    started: dict[str, tuple[str, float | None]] = field(default_factory=dict)
    """When a run began (UTC), and the load then."""
    epochs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By trial: one object for all of its records."""
    session: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    told: set[str] = field(default_factory=set)
    """Runs that have ended."""
    earlier: list[RunRecord] = field(default_factory=list)
    """Runs that the searcher has proposed before."""
    searcher: Any = None
    proposed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By run: what the searcher has said."""
    last_end: float | None = None
    broken: str = ""
    oversubscribes: Callable[[Any], bool] = lambda config: False

    def run(self, pending: Sequence[Run]) -> None:
        """Run what is feasible, and record a reason for what is not.

        Raises:
            InputError: nothing can be run, or a data set or a searcher cannot be used; nothing was started.
            WorkerGroupError: the ranks are gone for good.
        """
        self._make_searcher()
        self.store.add_session({"started_at": self.session, **_session(self.plan, self.options)})
        from dmls_ray.cluster.connect import cluster_at, local_resources

        joined = cluster_at(self.options.address)
        if joined is None:
            # Nothing starts before it is known that something can run, and that its data are there.
            feasible = self._set_aside(pending, local_resources())
            if not feasible:
                return
            self._begin(feasible)
        with _ray(joined, self.options) as resources:
            if joined is not None:
                feasible = self._set_aside(pending, resources)
                if not feasible:
                    return
                self._tell_if_busy(feasible, resources)
                self._begin(feasible, here=socket.gethostname() in {machine.name for machine in resources.machines})
            self._run_on(resources, feasible, ours=joined is None)

    def _begin(self, runs: Sequence[Run], *, here: bool = True) -> None:
        """Nothing is in the way of these runs; their data are prepared where ranks will be on this machine."""
        if here:
            prepare(runs, self.view)
        total = self.options.samples - len(self.earlier) if self.space else None
        self.view.begin([] if self.space else runs, self.store.records, self.plan.varied, total=total)

    def _tell_if_busy(self, runs: Sequence[Run], resources: Any) -> None:
        """A worker group waits, without a word from Ray, until the cluster has room for all of its ranks."""
        from dmls_ray.cluster.connect import free_resources

        free, configs = free_resources(), [run.config for run in runs if run.config is not None]
        for device, kind in (("cpu", "CPU"), ("cuda", "GPU")):
            ranks = max((item.world_size for item in configs if resources.device_of(item) == device), default=0)
            if free.get(kind, 0) < min(ranks, resources.cores if device == "cpu" else resources.gpus):
                self.view.note(
                    f"The cluster has {free.get(kind, 0):g} {kind}s free and the ranks need {ranks}: they start when "
                    "others have made room. Ctrl-C stops waiting."
                )

    def _set_aside(self, pending: Sequence[Run], resources: Any) -> list[Run]:
        """Record the runs that are not feasible as skipped; returns the others."""
        judged = self.plan.skip_infeasible(resources.judge(self.plan, oversubscribe=self.options.oversubscribe))
        judged = judged.skip_infeasible(Jobs(resources, self.options, self.store.folder).unavailable)
        by_id = {run.run_id: run for run in judged.runs}
        self.by_id = by_id
        self.oversubscribes = lambda config: resources.oversubscribes(config)
        if self.space:
            return self._examples(judged)
        known = {record.run_id: record for record in self.store.records}
        wanted = [by_id[run.run_id] for run in pending]
        for run in wanted:
            if run.skip and (run.run_id not in known or known[run.run_id].reason != run.skip):
                self._keep(self._record(run, Outcome.SKIPPED, reason=run.skip))
        return [run for run in wanted if not run.skip]

    def _run_on(self, resources: Any, runs: Sequence[Run], *, ours: bool) -> None:
        """Run these on the connected cluster."""
        from dmls_ray.cluster.messages import Limits
        from dmls_ray.cluster.pool import WorkerGroup
        from dmls_ray.cluster.tune import listed, run_jobs
        from dmls_ray.launch.command import run_command

        make = Jobs(resources, self.options, self.store.folder)
        jobs = [make.of(run) for run in runs]
        # Other launchers bring their own ranks along.
        served = [job for job in jobs if job.config.launcher == "ray"]
        ranks = max((job.config.world_size for job in served), default=0)
        device = "cuda" if any(job.device == "cuda" for job in jobs) else "cpu"
        searches = self.options.mode == "search"
        if searches:
            threads = max(job.config.threads_per_rank for job in jobs)
            room = resources.gpus if device == "cuda" else resources.cores // threads
            ranks = max(ranks, room if self.space else min(room, sum(job.config.world_size for job in jobs)))
        limits = Limits(**{spec.name: getattr(self.options, spec.name) for spec in fields(Limits)})
        group = WorkerGroup(
            resources, ranks=ranks, device=device, isolation=self.options.isolation, own_cluster=ours, limits=limits,
            exclusive=not searches,
        )  # fmt: skip
        trials = self._searched(make, jobs, ranks) if searches else listed(jobs)
        cut_short = True
        try:
            group.start()
            run_jobs(group, trials, self._listen, isolation=self.options.isolation, launch=run_command)
            cut_short = bool(self.broken)
        finally:
            group.end(cut_short=cut_short)
        if self.broken:
            raise WorkerGroupError(
                f"{self.broken}. The runs that had ended are kept; the same command runs the others."
            )

    # --- searching ------------------------------------------------------------------------------------------

    def _make_searcher(self) -> None:
        """Where a searcher of Tune's is asked for: it, and the runs that it has proposed before."""
        if self.space is None:
            return
        from dmls_ray.cluster.search import make_searcher

        # What failed is not counted; another takes its place.
        proposed = proposed_before(self.space, self.store.records)
        self.earlier = [record for record in proposed if record.outcome.is_answer()]
        # Drawn anew from the same seed, its first proposals would be those that it has made already.
        seed = self.options.order_seed + len(proposed)
        self.searcher = make_searcher(self.options.searcher, self.space, self._goal(), seed)

    def _goal(self) -> Any:
        from dmls_ray.cluster.search import Goal

        epochs = [run.values.get("epochs") for run in self.plan.runs]
        return Goal(
            metric=self.options.metric,
            minimizes=self.options.minimizes,
            scheduler=self.options.scheduler,
            max_epochs=max((item for item in epochs if isinstance(item, int)), default=100),
        )

    def _examples(self, judged: Plan) -> list[Run]:
        """What of the examples is feasible.

        Raises:
            ClusterError: nothing is.
        """
        feasible = [run for run in judged.runs if not run.skip]
        if not feasible:
            raise ClusterError(f"Nothing of what can be proposed is feasible: {judged.runs[0].skip}")
        return feasible

    def _searched(self, make: Jobs, jobs: Sequence[Job], ranks: int) -> Any:
        """The trials of a search, as many at once as there are ranks for."""
        from dmls_ray.cluster.search import Proposals, listed_trials, proposed_trials

        at_once = max(1, ranks // min(job.config.world_size for job in jobs))
        if self.space is None:
            return listed_trials(jobs, self._goal(), at_once=at_once)
        self.by_id = {}
        return proposed_trials(
            self.searcher, Proposals(self.space, make), self._goal(), samples=self.options.samples, at_once=at_once,
            earlier=self.earlier,
        )  # fmt: skip

    def _run_of(self, told: Mapping[str, Any]) -> Run:
        """The run of a trial in Tune, which knows it by its number, or by what a searcher has proposed."""
        if self.space is None:
            return self.by_id[told["run_id"]]
        run = self.space.run_of(told, order=len(self.earlier) + len(self.by_id))
        self.proposed[run.run_id] = dict(told)
        return self.by_id.setdefault(run.run_id, run)

    # --- what happens ---------------------------------------------------------------------------------------

    def _listen(self, told: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        run = self._run_of(told)
        run_id = run.run_id
        if run_id in self.told:
            return  # Tune's actor died right after; the next one is told all again
        if event["kind"] == "start":
            self.started[run_id] = (datetime.now(UTC).isoformat(timespec="milliseconds"), load_average())
            self.epochs[run_id] = []
            self.last_end = self.last_end or time.monotonic()
        elif event["kind"] == "epoch":
            self.epochs[run_id].append(dict(event))
        elif event["kind"] == "aborted":
            self.broken = str(event["reason"])
            return
        if event["kind"] == "done":
            self.told.add(run_id)
            record = self._ended(run, event)
            self._keep(record)
            self.view.done(run, record)
        else:
            self.view.event(run, event)

    def _ended(self, run: Run, event: Mapping[str, Any]) -> RunRecord:
        record = self._record(run, Outcome(event["outcome"]), reason=event["reason"])
        record.traceback = event["traceback"]
        record.attempts = event["attempts"]
        record.earlier_attempts = event["earlier"]
        if record.attempts:
            record.started_at, record.load_average = self.started.pop(run.run_id)
        record.take_results(event["results"])
        epochs = self.epochs.pop(run.run_id, [])
        if not record.epochs and epochs:
            # The run was cut short; the epochs it had told are what there is.
            record.take_epochs([EpochRecord(**{k: v for k, v in item.items() if k != "kind"}) for item in epochs])
        now = time.monotonic()
        if self.last_end is not None and record.total_s is not None and self.options.mode == "bench":
            record.overhead_s = now - self.last_end - record.total_s
        self.last_end = now
        return record

    def _record(self, run: Run, outcome: Outcome, *, reason: str) -> RunRecord:
        return RunRecord(
            run_id=run.run_id,
            trial_id=run.trial_id,
            repeat=run.repeat,
            order=run.order,
            order_seed=self.plan.order_seed,
            seed=run.seed,
            outcome=outcome,
            reason=reason,
            config=self.configs.setdefault(run.trial_id, dict(run.values)),
            sweep=self.options.name,
            session=self.session,
            isolation=self.options.isolation,
            mode=self.options.mode,
            proposed=self.proposed.get(run.run_id, {}),
            oversubscribed=run.config is not None
            and outcome is not Outcome.SKIPPED
            and self.oversubscribes(run.config),
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            machine=describe_machine(),
            versions=describe_versions(),
            git=describe_git(),
        )

    def _keep(self, record: RunRecord) -> None:
        with _uninterrupted():
            self.store.append(record)


@contextmanager
def _ray(joined: str | None, options: Options) -> Iterator[Any]:
    """Ray, joined or started, and what it has; our own is ended, another's is left."""
    from dmls_ray.cluster.connect import cluster_resources, connect, give_a_head_start

    # The imports take as long as Ray's start; they go side by side.
    loading = threading.Thread(target=_load_ray_libraries, daemon=True)
    loading.start()
    import ray

    connected_before = ray.is_initialized()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        connect(joined, dashboard=options.dashboard, verbose=options.verbose)
        if threading.current_thread() is threading.main_thread():
            # Ray puts a handler of its own in place, which ends the process on the spot.
            signal.signal(signal.SIGTERM, on_sigterm)
        give_a_head_start()
        loading.join()
        yield cluster_resources()
    finally:
        if not connected_before:
            ray.shutdown()


def _load_ray_libraries() -> None:
    import dmls_ray.cluster.torch_group
    import dmls_ray.cluster.tune  # noqa: F401


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block is over; outside the main thread they cannot arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    # Blocking the signals would not do: one of Ray's threads would take them, and Python acts in this one all the same.
    before = {number: signal.signal(number, lambda arrived, _: came.append(arrived)) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _session(plan: Plan, options: Options) -> dict[str, Any]:
    return {
        "command": shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        "name": options.name,
        "axis": options.axis,
        "axes": {name: list(values) for name, values in plan.axes.items()},
        "changed": list(plan.changed),
        "repeats": plan.repeats,
        "order_seed": plan.order_seed,
        "isolation": options.isolation,
        "mode": options.mode,
        **({"metric": options.metric, "minimizes": options.minimizes} if options.mode == "search" else {}),
        "machine": describe_machine(),
        "versions": describe_versions(),
        "git": describe_git(),
    }
