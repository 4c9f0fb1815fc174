"""The runs of one call on their way from the plan to the store: what is feasible, Ray around them, a record of each."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from dmls_ray.analysis.tensorboard.live import LiveTensorBoardWriter
from dmls_ray.config.grid import Plan, Run
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import SearchSpace
from dmls_ray.execution.jobs import JobFactory
from dmls_ray.execution.preflight import prepare, wanted_data
from dmls_ray.execution.search import Search
from dmls_ray.execution.view import ProgressView
from dmls_ray.records.aggregate import take_results
from dmls_ray.records.model import EpochRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import describe_git, describe_machine, describe_versions, load_average, machine_text
from dmls_ray.records.run_events import EpochEnded, RunAborted, RunEvent, RunFinished, RunStarted, SkipKind
from dmls_ray.storage.folder import Store
from dmls_ray.util.errors import HeadLostError, WorkerGroupError
from dmls_ray.workloads.registry import workload_of

_HEAD_LOST = (
    "The head of the Ray cluster does not answer any more. The runs that had ended are kept; once it is back, the same "
    "command runs the others."
)
_UNWINDS_WITHIN_S = 5.0

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Executor:
    """One call's runs on their way from the plan to the store."""

    plan: Plan
    options: Options
    store: Store
    view: ProgressView
    board: LiveTensorBoardWriter
    space: SearchSpace | None = None
    """What a searcher of Tune's proposes from; the plan then has examples of it."""
    by_id: dict[str, Run] = field(default_factory=dict)
    started: dict[str, tuple[str, float | None]] = field(default_factory=dict)
    """When a run began (UTC), and the load then."""
    epochs: dict[str, list[EpochRecord]] = field(default_factory=dict)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By trial: one object for all of its records."""
    session: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    told: set[str] = field(default_factory=set)
    """Runs that have ended."""
    tried: dict[str, frozenset[str]] = field(default_factory=dict)
    """Runs that were skipped at first, and the machines on which they were run after all."""
    lacked_ranks: set[str] = field(default_factory=set)
    """Runs that were skipped since too few ranks were left."""
    search: Search | None = None
    """In search mode."""
    last_end: float | None = None
    on_stuck: Callable[[HeadLostError], None] = lambda error: None
    """Called from another thread where this one waits for a head that is gone, and cannot be woken up. Ray ends the
    process minutes later."""
    head_lost: threading.Event = field(default_factory=threading.Event)
    unwound: threading.Event = field(default_factory=threading.Event)
    """This thread does not wait for Ray any more."""
    in_main_thread: bool = field(default_factory=lambda: threading.current_thread() is threading.main_thread())
    broken: str = ""
    oversubscribes: Callable[[Any], bool] = lambda config: False

    def run(self, pending: Sequence[Run]) -> None:
        """Run what is feasible, and record a reason for what is not.

        Raises:
            InputError: nothing can be run, or a data set or a searcher cannot be used; nothing was started.
            WorkerGroupError: the ranks are gone for good.
        """
        if self.options.mode == "search":
            self.search = Search(self.plan, self.options, self.space, self.store.records)
        self.store.add_session({"started_at": self.session, **_session(self.plan, self.options)})
        from dmls_ray.cluster.connect import cluster_at
        from dmls_ray.cluster.node_check import check_machines
        from dmls_ray.cluster.resources import local_resources

        joined = cluster_at(self.options.address)
        if joined is None:
            # Nothing starts before it is known that something can run, and that its data are there.
            feasible = self._set_aside(pending, local_resources())
            if not feasible:
                return
            self._begin(feasible)
        with _ray(joined, self.options) as resources:
            if joined is not None:
                check_machines(resources)
                feasible = self._set_aside(pending, resources)
                if not feasible:
                    return
                self._tell_if_busy(feasible, resources)
                self._begin(feasible, here=resources.has_this_machine)
            self._run_on(resources, feasible, ours=joined is None)

    def _begin(self, runs: Sequence[Run], *, here: bool = True) -> None:
        """Nothing is in the way of these runs; their data are prepared where ranks will be on this machine."""
        if here:
            prepare(runs, self.view.note)
        again = {run.run_id for run in runs}
        kept = [record for record in self.store.records if record.run_id not in again]
        self.board.begin(kept, [run.values for run in self.plan.runs])
        unknown = self.search.left if self.search and self.space else None
        self.view.begin([] if unknown else runs, self.store.records, self.plan.varied, total=unknown)

    def _tell_if_busy(self, runs: Sequence[Run], resources: Any) -> None:
        """A worker group waits, without a word from Ray, until the cluster has room for all of its ranks."""
        from dmls_ray.cluster.resources import free_resources

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
        # First what no cluster can mend.
        judged = self.plan.skip_infeasible(self._job_factory(resources).infeasible_anywhere)
        judged = judged.skip_infeasible(resources.judge(self.plan, oversubscribe=self.options.oversubscribe))
        by_id = {run.run_id: run for run in judged.runs}
        self.by_id = by_id
        self.oversubscribes = lambda config: resources.oversubscribes(config)
        if self.search and self.space:
            return self.search.examples(judged)
        known = {record.run_id: record for record in self.store.records}
        wanted = [by_id[run.run_id] for run in pending]
        for run in wanted:
            if run.skip and (run.run_id not in known or known[run.run_id].reason != run.skip):
                self._keep(self._record(run, Outcome.SKIPPED, reason=run.skip))
        return [run for run in wanted if not run.skip]

    def _job_factory(self, resources: Any) -> JobFactory:
        return JobFactory(resources, self.options, workload_of(self.plan.runs[0].values), self.store.folder)

    def _run_on(self, resources: Any, runs: Sequence[Run], *, ours: bool) -> None:
        """Run these on the connected cluster."""
        from dmls_ray.cluster.node_check import check_machines
        from dmls_ray.cluster.placement import RankRequest
        from dmls_ray.cluster.tune.run import listed, run_jobs
        from dmls_ray.cluster.worker_group import WorkerGroup, WorkerGroupSpec
        from dmls_ray.launchers.command import run_command

        make = self._job_factory(resources)
        jobs = [make.create(run) for run in runs]
        # Other launchers bring their own ranks along.
        served = [job for job in jobs if job.config.launcher == "ray"]
        device = "cuda" if any(job.device == "cuda" for job in jobs) else "cpu"
        needs = {RankRequest.of(job.config): None for job in served}
        if self.search:
            needs[RankRequest(world_size=self.search.ranks(jobs, resources, device))] = None
        demand = WorkerGroupSpec(
            needs=tuple(needs), device=device, oversubscribe=self.options.oversubscribe, data=wanted_data(runs)
        )
        group = WorkerGroup(
            resources, demand, isolation=self.options.isolation, own_cluster=ours, policy=self.options.retry_policy,
            exclusive=self.search is None, tell=self.view.note, head_is_lost=self._head_is_lost,
            check=check_machines,
        )  # fmt: skip
        trials = self.search.trials(make, jobs, group.ranks) if self.search else listed(jobs)
        cut_short = True
        try:
            group.start()
            run_jobs(group, trials, self._listen, isolation=self.options.isolation, launch=run_command)
            while not ours and not self.broken and (again := self._feasible_by_now(make)):
                wanted = needs | {RankRequest.of(job.config): None for job in again}
                data = wanted_data([*runs, *(self.by_id[job.run_id] for job in again)])
                group.resize(replace(demand, needs=tuple(wanted), data=data))
                run_jobs(group, listed(again), self._listen, isolation=self.options.isolation, launch=run_command)
            cut_short = bool(self.broken)
        except KeyboardInterrupt:
            if not self.head_lost.is_set():
                raise
        finally:
            self.unwound.set()
            if self.head_lost.is_set():
                group.detach()
            else:
                group.end(cut_short=cut_short)
        if self.head_lost.is_set():
            raise HeadLostError(_HEAD_LOST)
        if self.broken:
            raise WorkerGroupError(
                f"{self.broken}. The runs that had ended are kept; the same command runs the others."
            )

    def _head_is_lost(self) -> None:
        """Called from another thread: end what this one waits for."""
        self.head_lost.set()
        self.view.note("The head of the Ray cluster does not answer any more: the sweep ends here.")
        if self.in_main_thread:
            # A real signal, which wakes the main thread up wherever it waits, but in a call of Ray's to its head.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if not self.unwound.wait(_UNWINDS_WITHIN_S):
                self.on_stuck(HeadLostError(_HEAD_LOST))

    def _feasible_by_now(self, make: JobFactory) -> list[Any]:
        """JobFactory of the runs that were skipped for want of machines, and fit on those that have come since."""
        if self.search is not None:
            return []
        from dmls_ray.cluster.resources import cluster_resources

        now = cluster_resources()
        if not make.resources.gpus:
            # Its ranks hold no GPUs, also where machines with some have joined.
            now = replace(now, machines=tuple(replace(machine, gpus=0) for machine in now.machines))
        machines = frozenset(machine.node_id for machine in now.machines)
        known = {record.run_id: record for record in self.store.records}
        lacked = [run for run in self.plan.runs if self._lacked_machines(run, known.get(run.run_id), make)]
        judged = replace(self.plan, runs=tuple(replace(run, skip="") for run in lacked)).skip_infeasible(
            now.judge(self.plan, oversubscribe=self.options.oversubscribe)
        )
        judged = judged.skip_infeasible(replace(make, resources=now).infeasible_anywhere)
        # Once for the same machines: what they cannot do they will not do the next time.
        again = [run for run in judged.runs if not run.skip and self.tried.get(run.run_id) != machines]
        if not again:
            return []
        self.tried |= {run.run_id: machines for run in again}
        self.told -= {run.run_id for run in again}
        self.by_id |= {run.run_id: run for run in again}
        self.view.note(f"{len(again)} runs that were skipped fit on the machines that are there by now.")
        self.view.begin(again, self.store.records, self.plan.varied)
        return [replace(make, resources=now).create(run) for run in again]

    def _lacked_machines(self, run: Run, record: RunRecord | None, make: JobFactory) -> bool:
        """Whether this call has skipped a run because the machines that were there had no room for it."""
        if record is None or record.outcome is not Outcome.SKIPPED or record.session != self.session:
            return False
        if run.config is None or run.config.launcher != "ray":
            return False
        return bool(make.infeasible_reason(run.config)) or run.run_id in self.lacked_ranks

    def _run_of(self, told: Mapping[str, Any]) -> Run:
        """The run of a trial in Tune, which knows it by its number, or by what a searcher has proposed."""
        if self.search is not None and self.space is not None:
            return self.search.run_of(told)
        return self.by_id[told["run_id"]]

    def _listen(self, told: Mapping[str, Any], event: RunEvent) -> None:
        run = self._run_of(told)
        run_id = run.run_id
        if run_id in self.told:
            return  # Tune's actor died right after; the next one is told all again
        if isinstance(event, RunStarted):
            self.started[run_id] = (datetime.now(UTC).isoformat(timespec="milliseconds"), load_average())
            self.epochs[run_id] = []
            self.last_end = self.last_end or time.monotonic()
            self.board.run_started(self._begun(run, event))
        elif isinstance(event, EpochEnded):
            self.epochs[run_id].append(event.epoch)
            self.board.epoch_ended(run_id, event.epoch)
        elif isinstance(event, RunAborted):
            self.broken = event.reason
            return
        if isinstance(event, RunFinished):
            self.told.add(run_id)
            if event.verdict.skip is SkipKind.NO_RANKS:
                self.lacked_ranks.add(run_id)
            record = self._ended(run, event)
            self._keep(record)
            self.view.done(run, record)
            self.board.run_finished(record)
            if self.search and (note := self.search.missing_metric_note(record)):
                self.view.note(note)
        else:
            self.view.event(run, event)

    def _begun(self, run: Run, event: RunStarted) -> RunRecord:
        """What would be known of a run if it came to no end."""
        record = self._record(run, Outcome.KILLED, reason="")
        record.started_at, record.load_average = self.started[run.run_id]
        record.attempts = event.attempt
        return record

    def _ended(self, run: Run, event: RunFinished) -> RunRecord:
        record = self._record(run, event.verdict.outcome, reason=event.verdict.reason)
        record.traceback = event.verdict.traceback
        record.attempts = event.attempts
        record.earlier_attempts = [asdict(attempt) for attempt in event.earlier]
        if record.attempts:
            record.started_at, record.load_average = self.started.pop(run.run_id)
        take_results(record, event.results, workload_of(record.config).metrics)
        if event.machines:
            first, *others = event.machines
            record.machine = {**first, "beside": [machine_text(other) for other in others]} if others else first
        epochs = self.epochs.pop(run.run_id, [])
        if not record.epochs and epochs:
            # The run was cut short; the epochs it had told are what there is.
            record.take_epochs(epochs)
        now = time.monotonic()
        if self.last_end is not None and record.total_s is not None and self.search is None:
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
            proposed=self.search.proposed.get(run.run_id, {}) if self.search else {},
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
    from dmls_ray.cluster.compat import prestart_autoscaling_coordinator
    from dmls_ray.cluster.connect import connect
    from dmls_ray.cluster.resources import cluster_resources

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
        prestart_autoscaling_coordinator()
        loading.join()
        yield cluster_resources()
    except HeadLostError:
        connected_before = True  # nobody is there to say goodbye to
        raise
    finally:
        if not connected_before:
            ray.shutdown()


def _load_ray_libraries() -> None:
    import dmls_ray.cluster.trainer
    import dmls_ray.cluster.tune.run  # noqa: F401


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
        "command": _command(),
        "name": options.name,
        "question": options.question,
        "axis": options.axis,
        "axes": {name: list(values) for name, values in plan.axes.items()},
        "changed": list(plan.changed),
        "repeats": plan.repeats,
        **({} if options.mode == "search" else {"trials": " ".join(dict.fromkeys(run.trial_id for run in plan.runs))}),
        "order_seed": plan.order_seed,
        "isolation": options.isolation,
        "mode": options.mode,
        **({"metric": options.metric, "minimizes": options.minimizes} if options.mode == "search" else {}),
        "machine": describe_machine(),
        "versions": describe_versions(),
        "git": describe_git(),
    }


def _command() -> str:
    """What was typed; empty in a notebook, where nothing was."""
    return "" if "ipykernel" in sys.modules else shlex.join(["python", *sys.argv])
