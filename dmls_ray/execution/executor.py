"""`Executor`: runs the pending runs of one call on Ray, and stores a record of each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dmls_ray.analysis.summary.phrases import count_noun
from dmls_ray.analysis.tensorboard.live import LiveTensorBoardWriter
from dmls_ray.cluster.resources import Resources, check_accelerator, local_resources
from dmls_ray.config.grid import Plan, Run, configs_of
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import SearchSpace
from dmls_ray.execution.blocks import Blocks
from dmls_ray.execution.busy_cluster import describe_wait
from dmls_ray.execution.identities import Identities
from dmls_ray.execution.jobs import JobFactory, LateMachines
from dmls_ray.execution.main_thread import MainThread
from dmls_ray.execution.recorder import Recorder, describe_session
from dmls_ray.execution.run_folder import remove_checkpoints, run_folder
from dmls_ray.execution.run_notes import RunNotes
from dmls_ray.execution.search import Search
from dmls_ray.execution.view import ProgressView
from dmls_ray.records.model import RunRecord
from dmls_ray.records.run_events import EpochEnded, RunAborted, RunEvent, RunFinished, RunStarted, SkipKind
from dmls_ray.storage.folder import Store
from dmls_ray.util.errors import HeadLostError, NotKeptError, StoreError, WorkerGroupError
from dmls_ray.util.interrupts import uninterrupted
from dmls_ray.util.uri import is_uri
from dmls_ray.workloads.registry import workload_of

if TYPE_CHECKING:
    from dmls_ray.cluster.connect import RaySession
    from dmls_ray.cluster.worker_group import WorkerGroup


class Executor:
    """The runs of one call on their way from the plan to the store.

    Args:
        plan: the runs.
        options: how they are run.
        store: receives a record of each run.
        view: shows the progress.
        board: writes files for TensorBoard.
        identities: the code and data of each run.
        blocks: hands out the runs.
        space: what a searcher of Tune proposes from; the plan then has examples only.
        on_stuck: last resort, if the main thread is stuck in a call to a cluster that is gone or silent; called from
            any thread, to end the process.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        store: Store,
        view: ProgressView,
        board: LiveTensorBoardWriter,
        identities: Identities,
        blocks: Blocks,
        *,
        space: SearchSpace | None,
        on_stuck: Callable[[HeadLostError | KeyboardInterrupt], None] | None,
    ) -> None:
        self.plan, self.options, self.space = plan, options, space
        self.store, self.view, self.board, self.on_stuck = store, view, board, on_stuck
        self.identities, self.blocks = identities, blocks
        self.session = datetime.now(UTC).isoformat(timespec="seconds")
        self.workload = workload_of(plan.runs[0].values)
        self.recorder = Recorder(plan, options, self.workload, identities, self.session)
        self.search: Search | None = None
        self._by_id: dict[str, Run] = {}
        self._ended: set[str] = set()
        """The run_id of each run that has ended."""
        self._late: LateMachines | None = None
        self._notes = RunNotes()
        self._broken = ""
        """Why the worker group is lost for good."""
        self._not_kept: NotKeptError | None = None
        """Why the record of a run could not be written."""
        self._session: RaySession | None = None
        self._group: WorkerGroup | None = None
        self._leaving = threading.Lock()
        self._main_thread = MainThread(self._leave if on_stuck is not None else None)

    def run(self, pending: Sequence[Run]) -> None:
        """Run what is feasible, and record a reason for what is not.

        Raises:
            InputError: nothing can be run, or a data set or a searcher cannot be used; nothing was started.
            NotKeptError: the record of a run cannot be written.
            WorkerGroupError: the ranks are gone for good.
        """
        if self.options.mode == "search":
            self.search = Search(self.plan, self.options, self.space, self.store.all_records, self.identities)
        # From here on, the records of the store are those of the versions of code and data that the session names.
        identity = self.identities.together([*self.plan.runs, *(self.space.run_of_each_choice() if self.space else [])])
        self.store.add_session({"started_at": self.session, **describe_session(self.plan, self.options, identity)})
        from dmls_ray.cluster.connect import RaySession, cluster_at
        from dmls_ray.cluster.node_check import check_machines

        joined = cluster_at(self.options.address, self.view.note)
        if joined is None:
            # Ray starts only if a run is feasible and the data can be used.
            feasible = self._set_aside(pending, local_resources())
            if not feasible:
                return
            self._begin(feasible)
        session = RaySession(
            joined,
            dashboard=self.options.dashboard,
            verbose=self.options.verbose,
            notify=self.view.note,
            on_lost=lambda reason: self._main_thread.interrupt(lambda: self._loss(session)),
        )
        self._session = session
        try:
            with self._main_thread.watched(session), session.connected() as resources:
                if joined is not None:
                    check_machines(resources)
                    feasible = self._set_aside(pending, resources)
                    if not feasible:
                        return
                    for line in describe_wait(configs_of(feasible), resources, self.options.wait_for_ranks):
                        self.view.note(line)
                    self._begin(feasible, here=resources.has_this_machine)
                self._run_on(session, resources, feasible)
        except NotKeptError:
            raise
        except (Exception, KeyboardInterrupt):
            # Ray's errors follow from the loss, and the interrupt is that of `MainThread`.
            if session.lost:
                raise self._loss(session) from None
            raise

    def _begin(self, runs: Sequence[Run], *, here: bool = True) -> None:
        """Prepare the data on this machine if ranks run here, and show that the runs begin."""
        if here:
            self.workload.prepare(configs_of(runs), self.view.note)
            self.identities.complete()
        unknown = self.search.left if self.search and self.space else None
        self.view.begin([] if unknown else runs, self.store.records, self.plan.varied, total=unknown)

    def _set_aside(self, pending: Sequence[Run], resources: Resources) -> list[Run]:
        """Record the runs that are not feasible as skipped; returns the others. Raises as `check_accelerator`."""
        check_accelerator(resources, configs_of(pending))
        judged = self.plan.skip_infeasible(self._job_factory(resources).infeasible_reason)
        self._by_id = {run.run_id: run for run in judged.runs}
        self.recorder.oversubscribes = resources.oversubscribes
        if self.search and self.space:
            return self.search.examples(judged)

        records = {record.run_id: record for record in self.store.records}
        wanted = [self._by_id[run.run_id] for run in pending]
        for run in wanted:
            if run.skip and (run.run_id not in records or records[run.run_id].reason != run.skip):
                self._keep(self.recorder.skipped(run))
        return [run for run in wanted if not run.skip]

    def _job_factory(self, resources: Resources) -> JobFactory:
        holds_gpus = resources.holds_gpus(configs_of(self.plan.runs))
        return JobFactory(resources, self.options, self.workload, self.store.folder, self.identities, holds_gpus)

    def _run_on(self, session: RaySession, resources: Resources, runs: Sequence[Run]) -> None:
        """Run these on the connected cluster, and those that follow from how they end."""
        from dmls_ray.cluster.placement import RankRequest, WorkerGroupSpec
        from dmls_ray.cluster.tune.job_set import RunQueue, listed
        from dmls_ray.cluster.tune.run_jobs import run_jobs
        from dmls_ray.cluster.worker_group import WorkerGroup
        from dmls_ray.launchers.command import run_command

        factory = self._job_factory(resources)
        first, runs = runs, self._candidates(runs)
        jobs = list(map(factory.create, runs))
        self._late = LateMachines(self.plan, factory, self.session)
        # Other launchers start their ranks themselves.
        served = [job for job in jobs if job.config.launcher == "ray"]
        device = "cuda" if any(job.device == "cuda" for job in jobs) else "cpu"
        requests = {RankRequest.of(job.config): None for job in served}
        if self.search:
            requests[RankRequest(world_size=self.search.ranks(jobs, resources, device))] = None
        spec = WorkerGroupSpec(
            needs=tuple(requests), device=device, oversubscribe=self.options.oversubscribe, data=self._wanted_data(runs)
        )
        self._group = group = WorkerGroup(
            resources,
            spec,
            isolation=self.options.isolation,
            private_cluster=session.started_here,
            limits=self.options.run_limits,
            exclusive=self.search is None,
            notify=self.view.note,
            has_failed=self._on_failure,
        )
        again = [run.run_id for run in first]
        in_turn = listed(jobs, RunQueue(again, self._more))
        trials = self.search.trials(factory, jobs, group.ranks) if self.search else in_turn
        kept = [record for record in self.store.records if record.run_id not in again]
        # Here, while the ranks need seconds to start: its imports take turns with those of the driver.
        self.board.begin(kept)
        cut_short, is_left = True, False
        try:
            group.start()
            run_jobs(group, trials, self._listen, launch=run_command)
            while not session.started_here and not self._broken and (fit := self._fit_by_now()):
                late = list(map(self._late.jobs.create, self._candidates(fit)))
                wanted = requests | {RankRequest.of(job.config): None for job in late}
                data = self._wanted_data([*runs, *(self._by_id[job.run_id] for job in late)])
                group.resize(replace(spec, needs=tuple(wanted), data=data))
                queue = RunQueue([run.run_id for run in fit], self._more)
                run_jobs(group, listed([*jobs, *late], queue), self._listen, launch=run_command)
            cut_short = bool(self._broken)
        except KeyboardInterrupt:
            if not (session.lost or self._not_kept or self._broken):
                # At once, since whoever stops a job may kill it a few seconds later.
                self.view.note("Stopping: the runs that have ended are kept.")
                # Ranks that are left alone end with this process; in one that goes on they would hold their cores.
                is_left = session.is_silent(2.0 if self.on_stuck is not None else 30.0)
                if is_left:
                    session.give_up()
                raise
        finally:
            self._main_thread.has_unwound()
            session.ends()
            if session.lost or is_left:
                group.detach()
            else:
                group.end(cut_short=cut_short)
            if is_left and self.on_stuck is not None:
                self._leave(KeyboardInterrupt())

        if self._not_kept:
            raise self._not_kept
        if session.lost:
            raise self._loss(session)
        if self._broken:
            raise WorkerGroupError(
                f"{self._broken.rstrip('.')}. The runs that had ended are kept; the same command runs the others."
            )

    def _candidates(self, first: Sequence[Run]) -> Sequence[Run]:
        """The first runs, and all that may follow them."""
        if self.search:
            return first
        later = (self._by_id[run.run_id] for run in self.blocks.candidates)
        return list({run.run_id: run for run in (*first, *later) if not run.skip}.values())

    def _more(self) -> list[str]:
        """The runs that follow when all before have ended."""
        more = [run for item in self.blocks.next() if not (run := self._by_id[item.run_id]).skip]
        if more:
            self.view.extend(more, self.blocks.reason)
        return [run.run_id for run in more]

    def _wanted_data(self, runs: Sequence[Run]) -> tuple[tuple[Any, ...], ...]:
        """Workload and arguments of each data set that a machine prepares before its ranks serve."""
        return tuple((self.workload.name, *arguments) for arguments in self.workload.cached_data(configs_of(runs)))

    def _on_failure(self, reason: str) -> None:
        """End the sweep, whose runs nothing serves any more; called from another thread."""
        self._broken = reason
        self._main_thread.wake()

    def _leave(self, error: HeadLostError | KeyboardInterrupt) -> None:
        """End the process, which is this sweep's to end, without a call to Ray. Of two threads, one does it."""
        with self._leaving:
            if self._group is not None:
                self._group.detach()
            if self._session is not None:
                self._session.abandon()
            if self.on_stuck is not None:
                self.on_stuck(error)

    def _loss(self, session: RaySession) -> HeadLostError:
        """The error that ends a sweep whose cluster is lost."""
        runs = len(self.store.all_records)
        kept = f"{count_noun(runs, 'run')} {'is' if runs == 1 else 'are'} kept"
        if not is_uri(self.store.where):
            kept += f" in {self.store.where}"  # of a URI, which may lack some, another line says so
        again = "the same command" if session.started_here else "once it is back, the same command"
        return HeadLostError(f"{session.lost}. {kept}; {again} runs the others.")

    def _fit_by_now(self) -> list[Run]:
        """The skipped runs that fit on machines that have joined since."""
        again = self._late.feasible_now(self.store.records) if self._late and not self.search else []
        if again:
            self._ended -= {run.run_id for run in again}
            trials = {run.trial_id for run in again}
            self._by_id |= {run.run_id: run for run in self.plan.runs if run.trial_id in trials}
            self.view.note(f"{len(again)} runs that were skipped fit on the machines that are there by now.")
            self.view.begin(again, self.store.records, self.plan.varied)
        return again

    def _run_of(self, proposal: Mapping[str, Any]) -> Run:
        """The run of a trial of Tune: by its run_id, or by the values that a searcher proposed."""
        if self.search is not None and self.space is not None:
            return self.search.run_of(proposal)
        return self._by_id[proposal["run_id"]]

    def _listen(self, proposal: Mapping[str, Any], event: RunEvent) -> None:
        run = self._run_of(proposal)
        if run.run_id in self._ended:
            # Tune's actor died right after the run; its successor repeats all events.
            return
        proposed = self.search.proposed.get(run.run_id, {}) if self.search else {}
        if isinstance(event, RunAborted):
            self._broken = event.reason
        elif isinstance(event, RunFinished):
            try:
                self._finish(run, self.recorder.finished(run, event, proposed), event)
            except NotKeptError as error:
                # Ray Tune logs an Exception of a callback, and goes on.
                self._not_kept = error
                raise KeyboardInterrupt from error
        else:
            if isinstance(event, RunStarted):
                self.board.run_started(self.recorder.started(run, event, proposed))
            elif isinstance(event, EpochEnded):
                self.recorder.epoch_ended(run, event.epoch)
                self.board.epoch_ended(run.run_id, event.epoch)
            self.view.event(run, event)

    def _finish(self, run: Run, record: RunRecord, event: RunFinished) -> None:
        self._keep(record)
        if self.options.checkpoints and record.outcome.is_final():
            remove_checkpoints(run_folder(self.store.folder, run.run_id, self.identities.of(run)))
        self._ended.add(run.run_id)
        if event.verdict.skip is SkipKind.NO_RANKS and self._late is not None:
            self._late.lacked_ranks.add(run.run_id)
        self.view.done(run, record)
        self.board.run_finished(record)
        if self.search and (note := self.search.missing_metric_note(record)):
            self.view.note(note)
        shared = self.options.isolation == "group" and run.config is not None and run.config.launcher == "ray"
        for note in self._notes.of(record, event.results, shares_process=shared):
            self.view.note(note)

    def _keep(self, record: RunRecord) -> None:
        try:
            with uninterrupted():
                self.store.append(record)
        except StoreError as error:
            raise NotKeptError(
                f"{error} The runs that had ended are kept; the same command runs the others."
            ) from error
