"""`Executor`: runs the missing runs of one call on Ray, and stores a record of each."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dmls_ray.cluster.connect import RaySession
from dmls_ray.cluster.held_group import HeldGroup
from dmls_ray.cluster.joining import check_machines
from dmls_ray.cluster.lane_plan import LaneCount
from dmls_ray.cluster.resources import Resources, check_accelerator, local_resources
from dmls_ray.config.grid import Plan, Run, configs_of, skipped_values
from dmls_ray.execution.board import begin_board
from dmls_ray.execution.jobs import JobFactory, Search, remove_checkpoints, run_folder
from dmls_ray.execution.lane_check import are_known_to_differ, effect_of_sharing
from dmls_ray.execution.next_runs import NextRuns
from dmls_ray.execution.recorder import Recorder, describe_session
from dmls_ray.execution.slow_machines import slower_machines
from dmls_ray.execution.supervisor import Heartbeat
from dmls_ray.execution.turns import Turns, turns_on
from dmls_ray.execution.view import View
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RunAborted, RunEvent, RunFinished, RunStarted, SkipKind
from dmls_ray.storage.progress import ProgressFile
from dmls_ray.storage.store import Store
from dmls_ray.util.errors import ClusterError, ClusterLostError, NotKeptError, StoreError, WorkerGroupError
from dmls_ray.util.interpreter import uninterrupted
from dmls_ray.workloads.registry import workload_of

if TYPE_CHECKING:
    from dmls_ray.analysis.tensorboard.writer import LiveTensorBoardWriter
    from dmls_ray.cluster.worker_group import WorkerGroup

START_TIMEOUT_S = 600.0
"""How long the supervisor waits for the start of Ray and of the ranks."""

END_TIMEOUT_S = 10.0
"""How long the end of this process may take when the head of the cluster is lost."""
SILENT_TIMEOUT_S = 120.0
"""How long it waits for the next answer of the scheduler while runs go on."""

CHECK_INTERVAL_S = 0.5
"""Interval in which a sweep looks at its cluster."""

_KEPT = "The runs that had ended are kept; the same command runs the others."


class Executor:
    """The runs of one call on their way from the plan to the store.

    Args:
        state: the runs, how they are run, and which of them are missing.
        store: receives a record of each run.
        view: shows the progress.
        heartbeat: reports to the supervisor of this process.
        held: keeps Ray and the ranks for further calls.
        on_stop: called when the sweep is stopped, before the ranks end, which may take as long as a manager of jobs
            waits.
    """

    def __init__(
        self,
        state: NextRuns,
        store: Store,
        view: View,
        heartbeat: Heartbeat,
        held: HeldGroup | None = None,
        *,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.state, self.plan, self.options = state, state.plan, state.options
        self.store, self.view, self.heartbeat = store, view, heartbeat
        self._held = held or HeldGroup(self.options)
        self._at_end = nullcontext() if held else self._held
        self._on_stop = on_stop
        self.board: LiveTensorBoardWriter | None = None
        self.session = datetime.now(UTC).isoformat(timespec="seconds")
        self.workload = workload_of(self.plan.fixed)
        self.recorder = Recorder(self.plan, self.options, self.workload, self.session)
        self.search: Search | None = None
        self._turns: Turns | None = None
        self._by_id: dict[str, Run] = {}
        """The runs of the plan; those that are not feasible have a reason."""
        self._left_out: set[str] = set()
        """Names of machines that are not used, since they are slower."""
        self._lacking: set[str] = set()
        """Runs that were skipped for lack of machines."""
        self._not_recorded = {""}
        """What was noted about values that no record holds."""
        self._checked = 0.0
        """When the cluster was last looked at."""

    def run(self) -> None:
        """Run what is feasible, and record a reason for what is not.

        Raises:
            InputError: nothing can be run, or a data set or a searcher cannot be used; nothing was started.
            NotKeptError: the record of a run cannot be written.
            WorkerGroupError: the ranks cannot serve.
            ClusterLostError: a process that the sweep needs died; the same call continues.
        """
        if self.options.search:
            self.search = Search(self.state)
        # From here on, the records of the store are those of the code and data that the session names.
        described = describe_session(self.plan, self.options, self.state.space)
        self.store.add_sessions({"started_at": self.session, **described})

        progress = self.view.progress = ProgressFile(self.store.folder)
        joined = self._held.joins
        if joined is None:
            # Ray starts only if a run is feasible and the data can be used.
            runs = self._set_aside(local_resources())
            if not runs:
                return
            self._begin(runs)
        self.heartbeat.report(within_s=START_TIMEOUT_S)
        try:
            connected = self._held.connected(
                on_lost=lambda reason: self.heartbeat.report(reason=reason, within_s=END_TIMEOUT_S)
            )
            with self._at_end, connected as (session, resources):
                if joined is None:
                    self._run_on(session, resources, runs)
                else:
                    self._run_on_joined(session, resources)
        except ClusterLostError as error:
            raise ClusterLostError(f"{error}. {_KEPT}") from error
        finally:
            self.heartbeat.report(within_s=None)
            progress.remove()

    def _run_on_joined(self, session: RaySession, resources: Resources) -> None:
        """Run what is feasible on a cluster that others share, and what is feasible once machines have joined."""
        resources = resources.with_kinds(check_machines(resources))
        if self.options.leave_out_slower:
            self._left_out = slower_machines(resources, self.options.leave_out_slower, self.view.note)
            resources = resources.without(self._left_out)
        runs = self._set_aside(resources)
        while runs:
            self._begin(runs, is_here=resources.has_this_machine)
            now = self._run_on(session, resources, runs)
            runs = self._feasible_now(resources, now)
            resources = now

    def _feasible_now(self, before: Resources, now: Resources) -> list[Run]:
        """The runs that were skipped for lack of machines, and are feasible since others have joined."""
        joined = {machine.node_id for machine in now.machines} - {machine.node_id for machine in before.machines}
        # On GPUs, where the others ran on CPUs, their times could not be compared.
        is_comparable = bool(before.gpus) == bool(now.gpus)
        if not joined or not self._lacking or not is_comparable:
            return []
        judged = self._judge(now)
        runs = [run for run in judged.runs if run.run_id in self._lacking and not run.skip]
        self._lacking -= {run.run_id for run in runs}
        return runs

    def _judge(self, resources: Resources) -> Plan:
        """The plan with the reason why a run is not feasible on these machines."""
        judged = self.plan.skip_infeasible(self._job_factory(resources).infeasible_reason)
        self._by_id = {run.run_id: run for run in judged.runs}
        return judged

    def _set_aside(self, resources: Resources) -> list[Run]:
        """Record the missing runs that are not feasible as skipped; returns the others.

        Raises:
            ClusterError: nothing of what a searcher may propose is feasible, or as `check_accelerator`.
        """
        check_accelerator(resources, configs_of(self.state.missing))
        self.recorder.oversubscribes = resources.oversubscribes
        judged = self._judge(resources)
        missing = [self._by_id[run.run_id] for run in self.state.missing]
        feasible = [run for run in missing if not run.skip]
        if self.state.space is not None:
            # The plan has examples of what a searcher may propose.
            if not feasible:
                raise ClusterError(f"No configuration that can be proposed is feasible: {missing[0].skip}")
            return feasible

        for line in skipped_values(judged):
            self.view.note(line)
        reasons = {record.run_id: record.reason for record in self.store.records}
        for run in missing:
            if run.skip:
                self._lacking.add(run.run_id)
                if reasons.get(run.run_id) != run.skip:
                    self._keep(self.recorder.skipped(run))
        return feasible

    def _job_factory(self, resources: Resources) -> JobFactory:
        factory = JobFactory.of(self.plan, resources, self.options, self.store.folder)
        ended = [record for record in self.store.records if record.run_id in self.state.finished]
        return replace(factory, near={record.repeat: record.machine.get("host", "") for record in ended})

    def _begin(self, runs: Sequence[Run], *, is_here: bool = True) -> None:
        """Prepare the data on this machine if ranks run here, and show that the runs begin."""
        if is_here:
            self.heartbeat.report(within_s=None)
            self.workload.prepare(configs_of(runs), self.view.note)
            self.heartbeat.report(within_s=START_TIMEOUT_S)
        starts = not self._held.has_ranks
        unmeasured: set[str] = set()
        if self.state.space is None:
            ended = {record.trial_id for record in self.store.records if record.outcome is Outcome.OK}
            unmeasured = {run.trial_id for run in runs} - ended
        total = self.state.left_to_propose or len(runs)
        self.view.begin(total, self.plan.varied, starts=starts, unmeasured=unmeasured)

    def _run_on(
        self, session: RaySession, resources: Resources, first: Sequence[Run], most_lanes: LaneCount | None = None
    ) -> Resources:
        """Run these on the connected cluster, and those that follow; returns what is there at the end.

        There may be `most_lanes` lanes; without a number, as the options say.
        """
        from dmls_ray.cluster.tune.run_jobs import run_jobs
        from dmls_ray.cluster.tune.trainables import listed
        from dmls_ray.cluster.worker_group import WorkerGroup
        from dmls_ray.launchers.command import run_command

        factory = self._job_factory(resources)
        candidates = [self._by_id[run.run_id] for run in self.state.candidates]
        jobs = [factory.create(run) for run in candidates if not run.skip]
        group = WorkerGroup(
            resources,
            factory.group_spec(jobs),
            private_cluster=session.is_private,
            limits=self.options,
            exclusive=self.options.is_timed,
            lanes=most_lanes or factory.most_lanes(jobs),
            left_out=self._left_out,
            end_workers=session.end_workers,
            notify=self.view.note,
        )
        accepts = self.options.accept_slower
        if group.shares_machines and not accepts and are_known_to_differ(jobs[0], group.lanes):
            return self._run_on(session, resources, first, most_lanes=1)
        with self._held.serving(group) as group:
            self.view.lanes = lambda: group.lanes
            try:
                # While the ranks need seconds to start.
                self.board = begin_board(self.store, self.options.tensorboard, first, self.view.note)
                self.recorder.ranks = group.ranks
                check = functools.partial(self._check, session, group)
                may_run = True
                if group.shares_machines:
                    self.recorder.beside = effect_of_sharing(group, factory, first[0], self.recorder, self.view, check)
                    may_run = bool(self.recorder.beside)
                if may_run:
                    self._turns = turns_on(group, first, self._following, jobs, is_timed=self.options.is_timed)
                    trials = listed(jobs, self._turns)
                    if self.search:
                        trials = self.search.trials(trials, factory, jobs, group.ranks)
                    run_jobs(group, trials, self._listen, launch=run_command, check=check)
            except KeyboardInterrupt:
                # Before the ranks end, since whoever stops a job may kill it a few seconds later.
                self.view.note("Stopping: the runs that have ended are kept.")
                self._on_stop()
                raise
        if not may_run:
            return self._run_on(session, resources, first, most_lanes=1)
        return group.resources

    def _check(self, session: RaySession, group: WorkerGroup, has_answered: bool) -> None:
        """Report to the supervisor, and look whether all that the sweep needs is there; called all the time.

        Args:
            session: the cluster.
            group: the ranks.
            has_answered: whether the scheduler has answered since the last call.

        Raises:
            ClusterLostError: something has died.
        """
        if has_answered:
            self.heartbeat.report(within_s=SILENT_TIMEOUT_S)
        if time.monotonic() - self._checked < CHECK_INTERVAL_S:
            return
        self._checked = time.monotonic()
        if session.check():
            group.check()

    def _following(self, open_blocks: Collection[int]) -> list[Run]:
        """The feasible runs that follow those that were handed out, as `NextRuns.next`."""
        runs = [self._by_id[run.run_id] for run in self.state.next(open_blocks)]
        runs = [run for run in runs if not run.skip]
        if runs:
            self.view.extend(len(runs), self.state.reason)
        return runs

    def _listen(self, proposal: Mapping[str, Any], event: RunEvent) -> None:
        """Handle an event of a run.

        Args:
            proposal: the run_id, or the values that a searcher proposed.
            event: what has happened.
        """
        if self.search is not None and self.state.space is not None:
            run = self.search.run_of(proposal)
        else:
            run = self._by_id[proposal["run_id"]]
        if isinstance(event, RunAborted):
            if event.is_lost:
                raise ClusterLostError(event.reason)
            raise WorkerGroupError(f"{event.reason.rstrip('.')}. {_KEPT}")
        if isinstance(event, RunFinished):
            self._finish(run, self.recorder.finished(run, event), event)
            return
        if isinstance(event, RunStarted):
            self.recorder.started(run, event.lane)
        elif isinstance(event, EpochEnded):
            record = self.recorder.epoch_ended(run, event.epoch)
            if self.board is not None:
                self.board.write_last_epoch(record)
        self.view.event(run, event)

    def _finish(self, run: Run, record: RunRecord, event: RunFinished) -> None:
        self._keep(record)
        if event.verdict.skip is SkipKind.NO_RANKS:
            self._lacking.add(run.run_id)
        if self.options.checkpoints and record.outcome.is_final():
            remove_checkpoints(run_folder(self.store.folder, run.run_id))
        self.view.done(run, record)
        if self._turns is not None and (again := self._turns.ended(run, event.lane)):
            self.view.extend(len(again), f"Block {run.repeat + 1} is measured again on lane {event.lane}.")
        if self.board is not None:
            self.board.write(record)
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
