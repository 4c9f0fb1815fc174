"""Ray Tune's part: it owns the trials, one a run, and one actor that is reused from run to run."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray import tune
from ray.tune import Callback, Trainable
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from dmls_ray.cluster.broker_client import BrokerClient
from dmls_ray.cluster.external_run import Launch, LaunchedRun
from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.scheduler.dispatcher import skipped
from dmls_ray.cluster.worker_group import WorkerGroup, make_trainer
from dmls_ray.records.run_events import (
    EpochEnded,
    RunEvent,
    RunFinished,
    RunStarted,
    RunUnknown,
    SkipKind,
    is_last,
)
from dmls_ray.util.errors import WorkerGroupError

_ACTORS_MAY_DIE = 5
"""How often Tune's actor may die within one run."""

Listener = Callable[[dict[str, Any], RunEvent], None]
"""Called in the driver with the configuration of a trial in Tune, and each event of its run."""

JobOf = Callable[[dict[str, Any]], Job]
"""Gives the run of a trial's configuration in Tune, in the driver and in Tune's actor."""


@dataclass(frozen=True, kw_only=True)
class TuneJobSet:
    """What Tune is to run."""

    job_of: JobOf
    run_ids: tuple[str, ...] = ()
    """The runs; none where a searcher proposes them."""
    samples: int = 1
    at_once: int = 1
    """How many trials may be under way at the same time."""
    searcher: Any = None
    scheduler: Any = None
    metric: str = ""
    """What the searcher and the scheduler go by; empty where there is neither."""
    known: Mapping[str, float | None] = field(default_factory=dict)
    """By run: the metric of what has ended earlier, if a searcher should propose it again."""


def listed(jobs: Sequence[Job]) -> TuneJobSet:
    """These runs in their order, one at a time."""
    by_id = {job.run_id: job for job in jobs}
    return TuneJobSet(job_of=functools.partial(_of_list, by_id), run_ids=tuple(by_id))


def _of_list(jobs: dict[str, Job], config: dict[str, Any]) -> Job:
    return jobs[config["run_id"]]


class RunTrainable(Trainable):
    """One run: hands it to the broker and passes on what the broker tells of it."""

    _submitted: bool
    _launched: LaunchedRun | None
    _brokers_before: int
    _job: Job

    def setup(self, config: dict[str, Any], **parts: Any) -> None:
        self._broker = BrokerClient(parts["broker"])
        self._job_of: JobOf = parts["job_of"]
        self._start_launched: Callable[[Job], LaunchedRun] = parts["launched"]
        self._take(config)

    @property
    def _owner(self) -> str:
        """For whom the run is: a list has each run once, whichever trial stands for it."""
        return ""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._take(new_config)
        return True

    def step(self) -> dict[str, Any]:
        if self._job.config.launcher != "ray":
            return self._step_launched()
        events = self._events()
        while isinstance(events[-1], RunUnknown):
            # The broker is a new one: the run starts again from its first event.
            if self._submitted:
                self._brokers_before += 1
                self.end()
            self._submitted = True
            self.begin(self._job)
            if not self._broker.call("submit", self._job, self._brokers_before, owner=self._owner):
                # A searcher has proposed the same run twice.
                return {"run_id": self._job.run_id, "events": [], "done": True}
            events = self._events()
        done = is_last(events[-1])
        if done:
            self.end()
        return {"run_id": self._job.run_id, "events": events, "done": done}

    def _step_launched(self) -> dict[str, Any]:
        trial_id = self._job.trial_id
        if self._launched is None:
            if reason := self._broker.call("given_up", trial_id):
                return {"run_id": self._job.run_id, "events": [skipped(reason, SkipKind.GIVEN_UP)], "done": True}
            self._launched = self._start_launched(self._job)
        events = self._launched.events()
        if isinstance(events[-1], RunFinished):
            self._broker.call("has_ended", trial_id, events[-1].verdict)
        return {"run_id": self._job.run_id, "events": events, "done": is_last(events[-1])}

    def _events(self) -> list[RunEvent]:
        if self._submitted:
            with contextlib.suppress(ray.exceptions.RayActorError):
                events: list[RunEvent] = self._broker.call_once("events", self._job.run_id)
                return events
        return [RunUnknown()]

    def begin(self, job: Job) -> None:
        """Called before the run is queued; here the group's ranks serve it."""

    def end(self) -> None:
        """Called when the run is over; here the group's ranks stay."""

    def cleanup(self) -> None:
        if self._done:
            return
        if self._launched is not None:
            self._launched.cancel()
        else:
            self._broker.submit("cancel", self._job.run_id)

    def _take(self, config: dict[str, Any]) -> None:
        self._job = self._job_of(config)
        self._submitted = False
        self._launched = None
        self._brokers_before = 0

    @property
    def _done(self) -> bool:
        return self._last_result is not None and bool(self._last_result.get("done"))


class SearchTrainable(RunTrainable):
    """One run of a search: a step of it is an epoch, after which a scheduler decides whether it goes on."""

    _coming: deque[RunEvent]
    _level: float | None
    _attempt: int
    _epoch: int

    def setup(self, config: dict[str, Any], **parts: Any) -> None:
        self._metric: str = parts["metric"]
        self._known: Mapping[str, float | None] = parts["known"]
        self._proposes: bool = parts["proposes"]
        super().setup(config, **parts)

    @property
    def _owner(self) -> str:
        # A searcher may propose a run twice.
        return str(self.trial_id) if self._proposes else ""

    def step(self) -> dict[str, Any]:
        job = self._job
        if job.run_id in self._known:
            return self._result([], self._known[job.run_id], done=True)
        if job.skip:
            return self._result([skipped(job.skip, SkipKind.INFEASIBLE)], None, done=True)
        if self._epoch and job.prunable:
            # The scheduler has let it go on; else there would be no step.
            self._broker.call("decide", job.run_id, self._attempt, self._epoch)
        events: list[RunEvent] = []
        while not events or not (isinstance(events[-1], EpochEnded) or is_last(events[-1])):
            if not self._coming:
                self._coming.extend(super().step()["events"])
            if not self._coming:
                return self._result([], None, done=True)
            event = self._coming.popleft()
            events.append(event)
            if isinstance(event, RunStarted):
                self._attempt, self._epoch = event.attempt, 0
        last = events[-1]
        if isinstance(last, EpochEnded):
            self._epoch += 1
        self._level = metric_of(last, self._metric, self._level)
        return self._result(events, self._level, done=is_last(last))

    def _result(self, events: list[RunEvent], level: float | None, *, done: bool) -> dict[str, Any]:
        measured = {} if level is None else {self._metric: level}
        return {"run_id": self._job.run_id, "events": events, "done": done, "epoch": self._epoch, **measured}

    def cleanup(self) -> None:
        """The driver stops and follows to its end what a scheduler has stopped."""

    def _take(self, config: dict[str, Any]) -> None:
        super()._take(config)
        self._coming, self._level = deque(), None
        self._attempt, self._epoch = 1, 0


def metric_of(event: RunEvent, metric: str, before: float | None = None) -> float | None:
    """The metric in this event, or its previous value if the event has none or it is not finite."""
    value: Any = None
    if isinstance(event, EpochEnded):
        value = event.epoch.measures.get(metric, getattr(event.epoch, metric, None))
    elif isinstance(event, RunFinished) and event.results:
        value = event.results[0].run.get("returned", {}).get(metric)
    return value if isinstance(value, int | float) and math.isfinite(value) else before


class IsolatedRunTrainable(RunTrainable):
    """The documented pattern, a TorchTrainer a run: its ranks join the same broker, serve this one run, and end."""

    def setup(self, config: dict[str, Any], **parts: Any) -> None:
        self._group = parts["group"]
        super().setup(config, **parts)

    def begin(self, job: Job) -> None:
        ranks = job.config.world_size
        # A name that was used before would be taken up from there by Train.
        self._trainer = f"{self._group['settings']['trainer']}-{job.run_id}-{uuid.uuid4().hex[:8]}"
        self._broker.call("expect", self._trainer, ranks)
        settings = {**self._group["settings"], "trainer": self._trainer}
        trainer = make_trainer(settings, ranks=ranks, per_rank=self._group["per_rank"], node_id=None)
        self._thread = threading.Thread(target=self._hold, args=(trainer,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        # A rank that died has been started anew by now, and must not wait for work.
        self._broker.call("end_trainer", self._trainer)
        self._thread.join()

    def _hold(self, trainer: Any) -> None:
        try:
            trainer.fit()
        except Exception as error:  # noqa: BLE001 - the sweep must be told whatever ended the group
            self._broker.submit("abort", f"Ray Train's worker group failed: {error}")


class _Forward(Callback):
    def __init__(self, listener: Listener, group: WorkerGroup, trials: TuneJobSet) -> None:
        self._listener, self._group, self._trials = listener, group, trials
        self.ended: set[str] = set()
        """Runs that have."""
        self._told: set[str] = set()
        """Trials of Tune's that have nothing more to tell."""
        self._attempts: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tune saves its callbacks to restore a sweep. We resume from runs.jsonl, and a listener lives here alone.
        return {}

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        run_id, events = result["run_id"], result["events"]
        if not self._trials.metric:
            # Tune keeps each trial's last result until the sweep's end, and statistics of every number in it.
            for name in result.keys() - {"run_id", "trial_id"}:
                del result[name]
        if not events:
            self._told.add(trial.trial_id)  # its run was known, or is another trial's
        for event in events:
            self._pass_on(trial, run_id, event)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Where a scheduler has stopped the trial, its run ends here: its ranks wait to be told."""
        if trial.trial_id in self._told:
            return
        run_id = self._trials.job_of(trial.config).run_id
        self._group.broker.call("decide", run_id, self._attempts[run_id], None)
        while trial.trial_id not in self._told:
            for event in self._group.broker.call("events", run_id):
                self._pass_on(trial, run_id, event)

    def _pass_on(self, trial: Any, run_id: str, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            self._attempts[run_id] = event.attempt
            self._group.note_controllers()
        if isinstance(event, RunUnknown):
            # The broker has died in between, and with it the run, which the same command runs again.
            self._told.add(trial.trial_id)
            return
        self._listener(trial.config, event)
        if is_last(event):
            self._told.add(trial.trial_id)
            self.ended.add(run_id)
            self._group.broker.submit("forget", run_id)


class _InOrder(FIFOScheduler):
    """The trials in their order; Tune's own goes through all of them for the next, those that have ended, too."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[Trial, None] = {}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        self._open[trial] = None

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        self._open = {trial: None for trial in self._open if not trial.is_finished()}
        return next((trial for trial in self._open if trial.status == Trial.PENDING), None)


def run_jobs(group: WorkerGroup, trials: TuneJobSet, listener: Listener, *, isolation: str, launch: Launch) -> None:
    """Run the trials, and tell the listener of each event as it comes.

    Args:
        group: serves those whose launcher is ray.
        trials: the runs.
        listener: called in this process.
        isolation: `group` or `per_run`.
        launch: runs those of another launcher.

    Raises:
        WorkerGroupError: a trial ended in Ray and not in its run.
    """
    settings = group.settings(group.name)
    parameters: dict[str, Any] = {
        "broker": group.name,
        "job_of": trials.job_of,
        "launched": functools.partial(
            LaunchedRun,
            launch=functools.partial(launch, path=settings["path"], cwd=settings["cwd"]),
            policy=group.policy,
        ),
    }
    trainable: type[RunTrainable] = RunTrainable
    if isolation == "per_run":
        trainable = IsolatedRunTrainable
        parameters["group"] = {
            "settings": group.settings(group.name, max_leases=1),
            "per_rank": group.per_rank(),
        }
    elif trials.metric:
        trainable = SearchTrainable
        parameters |= {"metric": trials.metric, "known": trials.known, "proposes": not trials.run_ids}
    # Tune reserves a CPU a trial unless told otherwise, and refuses none at all; the ranks need them all. On this
    # machine, so that no other takes the actor along.
    address = ray.util.get_node_ip_address()
    place = tune.PlacementGroupFactory([{"memory": 1, f"node:{address}": 0.001}])
    here = tune.with_resources(tune.with_parameters(trainable, **parameters), place)
    forward = _Forward(listener, group, trials)
    while True:
        outcomes = _tuner(here, trials, forward, storage=str(group.storage)).fit()
        # Trials may end without their runs: Tune does not retry one whose actor dies while it turns to it.
        left = tuple(run_id for run_id in trials.run_ids if run_id not in forward.ended)
        if not left and (trials.run_ids or not outcomes.errors):
            return
        if len(left) == len(trials.run_ids):
            told = next(
                (str(error).strip().splitlines()[-1] for error in outcomes.errors), "trials ended without a word"
            )
            raise WorkerGroupError(f"Ray lost its hold of the sweep: {told}.")
        trials = replace(trials, run_ids=left)


def _tuner(trainable: Any, trials: TuneJobSet, forward: _Forward, *, storage: str) -> tune.Tuner:
    return tune.Tuner(
        trainable,
        param_space={"run_id": tune.grid_search(list(trials.run_ids))} if trials.run_ids else {},
        tune_config=tune.TuneConfig(
            max_concurrent_trials=trials.at_once,
            reuse_actors=True,
            num_samples=trials.samples,
            search_alg=trials.searcher,
            scheduler=trials.scheduler or _InOrder(),
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=storage,
            callbacks=[forward],
            # A run's state is its ranks'; by default Tune would save this actor's after each.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            # Tune's actor only stands for the run; where it dies, another asks the broker on.
            failure_config=tune.FailureConfig(max_failures=_ACTORS_MAY_DIE),
            verbose=0,
            progress_reporter=_Silent(),
        ),
    )


class _Silent(tune.ProgressReporter):
    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        return False

    def report(self, trials: list[Any], done: bool, *sys_info: Any) -> None:
        """The live view reports."""
