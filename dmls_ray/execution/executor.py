"""`Executor`: runs the pending runs of one call on Ray, and stores a record of each."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dmls_ray.analysis.tensorboard.live import LiveTensorBoardWriter
from dmls_ray.cluster.resources import Resources, check_accelerator, local_resources
from dmls_ray.config.grid import Plan, Run, configs_of
from dmls_ray.execution.folder_state import FolderState
from dmls_ray.execution.heartbeat import Heartbeat
from dmls_ray.execution.jobs import JobFactory
from dmls_ray.execution.recorder import Recorder, describe_session
from dmls_ray.execution.run_folder import remove_checkpoints, run_folder
from dmls_ray.execution.search import Search
from dmls_ray.execution.view import PlainView
from dmls_ray.records.model import RunRecord
from dmls_ray.records.run_events import EpochEnded, RunAborted, RunEvent, RunFinished, RunStarted, SkipKind
from dmls_ray.storage.folder import Store
from dmls_ray.util.errors import ClusterLostError, NotKeptError, StoreError, WorkerGroupError
from dmls_ray.util.interrupts import uninterrupted
from dmls_ray.workloads.registry import workload_of

if TYPE_CHECKING:
    from dmls_ray.cluster.connect import RaySession
    from dmls_ray.cluster.messages import Job
    from dmls_ray.cluster.resources import WorkerGroupSpec
    from dmls_ray.cluster.worker_group import WorkerGroup

START_TIMEOUT_S = 600.0
"""How long the supervisor waits for the start of Ray and of the ranks."""

SILENT_TIMEOUT_S = 120.0
"""How long it waits for the next answer of the scheduler while runs go on."""

CHECK_INTERVAL_S = 0.5
"""Interval in which a sweep reports to the supervisor and looks at its cluster."""

_KEPT = "The runs that had ended are kept; the same command runs the others."


class Executor:
    """The runs of one call on their way from the plan to the store.

    Args:
        state: the runs, how they are run, and which of them are missing.
        store: receives a record of each run.
        view: shows the progress.
        board: writes files for TensorBoard.
        heartbeat: reports to the supervisor of this process.
    """

    def __init__(
        self, state: FolderState, store: Store, view: PlainView, board: LiveTensorBoardWriter, heartbeat: Heartbeat
    ) -> None:
        self.plan, self.options, self.space = state.plan, state.options, state.space
        self.store, self.view, self.board, self.heartbeat = store, view, board, heartbeat
        self._state, self._missing = state, state.missing
        self.session = datetime.now(UTC).isoformat(timespec="seconds")
        self.workload = workload_of(self.plan.runs[0].values)
        self.recorder = Recorder(self.plan, self.options, self.workload, self.session)
        self.search: Search | None = None
        self._by_id: dict[str, Run] = {}
        self._lacking: set[str] = set()
        """Runs that were skipped for lack of machines."""
        self._not_recorded = {""}
        """What was noted about values that no record holds."""
        self._has_board = False
        self._checked = 0.0
        """When the cluster was last looked at."""
        self._has_news = False
        """Whether there is something to report to the supervisor."""

    def run(self) -> None:
        """Run what is feasible, and record a reason for what is not.

        Raises:
            InputError: nothing can be run, or a data set or a searcher cannot be used; nothing was started.
            NotKeptError: the record of a run cannot be written.
            WorkerGroupError: the ranks cannot serve.
            ClusterLostError: a process that the sweep needs died; the same call continues.
        """
        if self.options.mode == "search":
            self.search = Search(self.plan, self.options, self.space, self._state.proposed)
        # From here on, the records of the store are those of the code and data that the session names.
        proposable = self.space.run_of_each_choice() if self.space else []
        described = describe_session(self.plan, self.options, proposable)
        self.store.add_session({"started_at": self.session, **described})
        from dmls_ray.cluster.connect import RaySession, cluster_at

        joined = cluster_at(self.options.address)
        if joined is None:
            # Ray starts only if a run is feasible and the data can be used.
            feasible = self._set_aside(local_resources())
            if not feasible:
                return
            self._begin(feasible)
        session = RaySession(joined, dashboard=self.options.dashboard, verbose=self.options.verbose)
        self.heartbeat.beat(START_TIMEOUT_S)
        try:
            with session.connected() as resources:
                if joined is None:
                    self._run_on(session, resources, feasible)
                else:
                    self._run_on_joined(session, resources)
        except ClusterLostError as error:
            raise ClusterLostError(f"{error}. {_KEPT}") from error
        finally:
            self.heartbeat.beat(None)

    def _run_on_joined(self, session: RaySession, resources: Resources) -> None:
        """Run what is feasible on a cluster that others share, and what is feasible once machines have joined."""
        from dmls_ray.cluster.joining import check_machines

        check_machines(resources)
        runs = self._set_aside(resources)
        while runs:
            self._note_busy(resources, runs)
            self._begin(runs, here=resources.has_this_machine)
            now = self._run_on(session, resources, runs)
            runs = self._feasible_now(resources, now)
            resources = now

    def _note_busy(self, resources: Resources, runs: Sequence[Run]) -> None:
        """Note that ranks wait for other jobs of the cluster: Ray itself would wait in silence."""
        from dmls_ray.cluster.resources import free_resources
        from dmls_ray.cluster.scheduler.membership import START_TIMEOUT_S as RANKS_TIMEOUT_S

        free, wait_s = free_resources(), max(RANKS_TIMEOUT_S, self.options.wait_for_ranks)
        for device, kind, there in (("cpu", "CPU", resources.cores), ("cuda", "GPU", resources.gpus)):
            sizes = [config.world_size for config in configs_of(runs) if resources.device_of(config) == device]
            if free.get(kind, 0) < min(max(sizes, default=0), there):
                self.view.note(
                    f"The cluster has {free.get(kind, 0):g} {kind}s free and the ranks need {max(sizes)}: they start "
                    f"when other jobs have ended. The sweep waits {wait_s:g} s for it (--wait-for-ranks)."
                )

    def _begin(self, runs: Sequence[Run], *, here: bool = True) -> None:
        """Prepare the data on this machine if ranks run here, and show that the runs begin."""
        if here:
            self.heartbeat.beat(None)
            self.workload.prepare(configs_of(runs), self.view.note)
            self.heartbeat.beat(START_TIMEOUT_S)
        unknown = self.search.left if self.search and self.space else None
        self.view.begin([] if unknown else runs, self.store.records, self.plan.varied, total=unknown)

    def _set_aside(self, resources: Resources) -> list[Run]:
        """Record the runs that are not feasible as skipped; returns the others. Raises as `check_accelerator`."""
        check_accelerator(resources, configs_of(self._missing))
        judged = self._judge(resources)
        self.recorder.oversubscribes = resources.oversubscribes
        if self.search and self.space:
            return self.search.examples(judged)

        reasons = {record.run_id: record.reason for record in self.store.records}
        wanted = [self._by_id[run.run_id] for run in self._missing]
        for run in wanted:
            if run.skip:
                self._lacking.add(run.run_id)
                if reasons.get(run.run_id) != run.skip:
                    self._keep(self.recorder.skipped(run))
        return [run for run in wanted if not run.skip]

    def _judge(self, resources: Resources) -> Plan:
        """The plan with the reason why a run is not feasible on these machines."""
        judged = self.plan.skip_infeasible(self._job_factory(resources).infeasible_reason)
        self._by_id = {run.run_id: run for run in judged.runs}
        return judged

    def _feasible_now(self, before: Resources, now: Resources) -> list[Run]:
        """The runs that were skipped for lack of machines, and are feasible since others have joined."""
        joined = {machine.node_id for machine in now.machines} - {machine.node_id for machine in before.machines}
        # On GPUs, where the others ran on CPUs, their times could not be compared.
        is_comparable = bool(before.gpus) == bool(now.gpus)
        if not joined or not self._lacking or not is_comparable:
            return []
        runs = [run for run in self._judge(now).runs if run.run_id in self._lacking and not run.skip]
        self._lacking -= {run.run_id for run in runs}
        if runs:
            self.view.note(f"{len(runs)} runs that were skipped fit on the machines that are there by now.")
        return runs

    def _job_factory(self, resources: Resources) -> JobFactory:
        holds_gpus = resources.holds_gpus(configs_of(self.plan.runs))
        return JobFactory(resources, self.options, self.workload, self.store.folder, holds_gpus)

    def _run_on(self, session: RaySession, resources: Resources, first: Sequence[Run]) -> Resources:
        """Run these on the connected cluster, and those that follow from how they end.

        Returns:
            What the cluster has at the end.
        """
        from dmls_ray.cluster.tune.run_jobs import run_jobs
        from dmls_ray.cluster.tune.trainables import listed
        from dmls_ray.cluster.worker_group import WorkerGroup
        from dmls_ray.launchers.command import run_command

        factory = self._job_factory(resources)
        runs = self._candidates(first)
        jobs = [factory.create(run) for run in runs]
        spec = self._group_spec(resources, runs, jobs)
        group = WorkerGroup(
            resources,
            spec,
            isolation=self.options.isolation,
            private_cluster=session.started_here,
            limits=self.options.run_limits,
            exclusive=self.search is None,
            notify=self.view.note,
        )
        serve = functools.partial(
            run_jobs,
            group,
            listener=self._listen,
            launch=run_command,
            check=functools.partial(self._check, session, group),
        )
        try:
            with group:
                if not self._has_board:
                    # Here, while the ranks need seconds to start: its imports take turns with those of the driver.
                    again = {run.run_id for run in first}
                    self.board.begin([record for record in self.store.records if record.run_id not in again])
                    self._has_board = True
                trials = listed(jobs, self._in_turn(first))
                if self.search:
                    trials = self.search.trials(trials, factory, jobs, group.ranks)
                serve(trials)
        except KeyboardInterrupt:
            # At once, since whoever stops a job may kill it a few seconds later.
            self.view.note("Stopping: the runs that have ended are kept.")
            raise
        return group.resources

    def _group_spec(self, resources: Resources, runs: Sequence[Run], jobs: Sequence[Job]) -> WorkerGroupSpec:
        """What the worker group must have for these runs."""
        from dmls_ray.cluster.resources import RankRequest, WorkerGroupSpec

        device = "cuda" if any(job.device == "cuda" for job in jobs) else "cpu"
        # Other launchers start their ranks themselves.
        requests = {RankRequest.of(job.config): None for job in jobs if job.config.launcher == "ray"}
        if self.search:
            requests[RankRequest(world_size=self.search.ranks(jobs, resources, device))] = None
        data = self.workload.cached_data(configs_of(runs))
        return WorkerGroupSpec(
            needs=tuple(requests),
            device=device,
            oversubscribe=self.options.oversubscribe,
            data=tuple((self.workload.name, *arguments) for arguments in data),
            user_code_entry=next((job.train for job in jobs if job.identity.code), ""),
        )

    def _check(self, session: RaySession, group: WorkerGroup, has_answered: bool) -> None:
        """Report to the supervisor, and look whether all that the sweep needs is there; called all the time.

        Args:
            session: the cluster.
            group: the ranks.
            has_answered: whether the scheduler has answered since the last call.

        Raises:
            ClusterLostError: something has died.
        """
        self._has_news = self._has_news or has_answered
        if time.monotonic() - self._checked < CHECK_INTERVAL_S:
            return
        self._checked = time.monotonic()
        if self._has_news:
            self.heartbeat.beat(SILENT_TIMEOUT_S)
            self._has_news = False
        session.check()
        group.check()

    def _candidates(self, first: Sequence[Run]) -> Sequence[Run]:
        """The first runs, and all that may follow them."""
        later = (self._by_id[run.run_id] for run in self._state.candidates)
        return list({run.run_id: run for run in (*first, *later) if not run.skip}.values())

    def _in_turn(self, first: Sequence[Run]) -> Iterator[str]:
        """The first runs, and those that follow when all before have ended."""
        runs = list(first)
        while runs:
            yield from [run.run_id for run in runs]
            following = [self._by_id[run.run_id] for run in self._state.next()]
            runs = [run for run in following if not run.skip]
            if runs:
                self.view.extend(runs, self._state.reason)

    def _run_of(self, proposal: Mapping[str, Any]) -> Run:
        """The run of a trial of Tune: by its run_id, or by the values that a searcher proposed."""
        if self.search is not None and self.space is not None:
            return self.search.run_of(proposal)
        return self._by_id[proposal["run_id"]]

    def _listen(self, proposal: Mapping[str, Any], event: RunEvent) -> None:
        run = self._run_of(proposal)
        if isinstance(event, RunAborted):
            if event.is_lost:
                raise ClusterLostError(event.reason)
            raise WorkerGroupError(f"{event.reason.rstrip('.')}. {_KEPT}")
        if isinstance(event, RunFinished):
            self._finish(run, self.recorder.finished(run, event), event)
        else:
            if isinstance(event, RunStarted):
                self.board.run_started(self.recorder.started(run, event))
            elif isinstance(event, EpochEnded):
                self.recorder.epoch_ended(run, event.epoch)
                self.board.epoch_ended(run.run_id, event.epoch)
            self.view.event(run, event)

    def _finish(self, run: Run, record: RunRecord, event: RunFinished) -> None:
        self._keep(record)
        if self.options.checkpoints and record.outcome.is_final():
            remove_checkpoints(run_folder(self.store.folder, run.run_id))
        if event.verdict.skip is SkipKind.NO_RANKS:
            self._lacking.add(run.run_id)
        self.view.done(run, record)
        self.board.run_finished(record)
        if self.search and (note := self.search.missing_metric_note(record)):
            self.view.note(note)
        if record.not_recorded not in self._not_recorded:
            self._not_recorded.add(record.not_recorded)
            self.view.note(f"Run {record.run_id}: not recorded: {record.not_recorded}.")

    def _keep(self, record: RunRecord) -> None:
        try:
            with uninterrupted():
                self.store.append(record)
        except StoreError as error:
            raise NotKeptError(f"{error} {_KEPT}") from error
        self.heartbeat.report(done=len(self.store.all_records))
