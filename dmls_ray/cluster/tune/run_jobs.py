"""`run_jobs`: Ray Tune owns one trial per run, and one actor that is reused from run to run.

`ForwardEvents` is its callback in the driver.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from dmls_ray.cluster.external_run import Launch, LaunchedRun
from dmls_ray.cluster.tune.job_set import RunQueue, TuneJobSet
from dmls_ray.cluster.tune.stopped_actors import end_stopped_actors
from dmls_ray.cluster.tune.trainables import IsolatedRunTrainable, RunTrainable, SearchTrainable
from dmls_ray.cluster.worker_group import WorkerGroup
from dmls_ray.records.run_events import RunEvent, RunStarted, RunUnknown, is_last
from dmls_ray.util.errors import WorkerGroupError

Listener = Callable[[dict[str, Any], RunEvent], None]
"""Called in the driver with the configuration of a trial in Tune, and each event of its run."""

MAX_ACTOR_DEATHS = 5
"""Deaths of Tune's actor within one run after which the trial fails."""


class _InOrder(FIFOScheduler):
    """Trials in their order. Tune's own scheduler searches all trials for the next one, including ended ones."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[Trial, None] = {}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        self._open[trial] = None

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        self._open = {trial: None for trial in self._open if not trial.is_finished()}
        return next((trial for trial in self._open if trial.status == Trial.PENDING), None)


class _InTurn(Searcher):
    """Proposes the runs of a queue. Unlike a grid of Tune's, it can say late that there are more."""

    def __init__(self, queue: RunQueue) -> None:
        super().__init__()
        self._queue = queue

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        run_id = self._queue.take()
        return Searcher.FINISHED if run_id is None else {"run_id": run_id}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """The queue's owner learns how runs end from their events."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """We resume from runs.jsonl."""

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its searcher to restore a sweep.
        return {}


class ForwardEvents(tune.Callback):
    """Passes the events of all runs to a listener in the driver."""

    def __init__(self, listener: Listener, group: WorkerGroup, trials: TuneJobSet) -> None:
        self._listener, self._group, self._trials = listener, group, trials
        self.ended: set[str] = set()
        """Runs that have ended."""
        self._complete: set[str] = set()
        """Tune trials without further events."""
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
            self._complete.add(trial.trial_id)  # its run had ended earlier, or belongs to another trial
        for event in events:
            self._pass_on(trial, run_id, event)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """End the run of a trial that a scheduler has stopped: its ranks wait for the decision."""
        if trial.trial_id in self._complete:
            return
        run_id = self._trials.job_of(trial.config).run_id
        self._group.broker.call("decide", run_id, self._attempts[run_id], None)
        while trial.trial_id not in self._complete:
            for event in self._group.broker.call("events", run_id):
                self._pass_on(trial, run_id, event)

    def _pass_on(self, trial: Any, run_id: str, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            self._attempts[run_id] = event.attempt
            self._group.note_trainers()
        if isinstance(event, RunUnknown):
            # The broker has died, and the run with it; the same command runs it again.
            self._complete.add(trial.trial_id)
            return
        self._listener(trial.config, event)
        if is_last(event):
            self._complete.add(trial.trial_id)
            self.ended.add(run_id)
            self._group.broker.submit("forget", run_id)


def run_jobs(group: WorkerGroup, trials: TuneJobSet, listener: Listener, *, launch: Launch) -> None:
    """Run the trials, and pass each event to the listener as it comes.

    Args:
        group: serves those whose launcher is ray.
        trials: the runs.
        listener: called in this process.
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
            launch=functools.partial(launch, path=settings.module_path, cwd=settings.working_dir),
            limits=group.limits,
        ),
    }
    trainable: type[RunTrainable] = RunTrainable
    if group.isolation == "per_run":
        trainable = IsolatedRunTrainable
        parameters["group"] = {
            "settings": group.settings(group.name),
            "per_rank": group.per_rank(),
        }
    elif trials.metric:
        trainable = SearchTrainable
        parameters |= {"metric": trials.metric, "earlier": trials.earlier, "proposes": trials.queue is None}
    # By default Tune reserves a CPU per trial, and it refuses none at all; the ranks need all CPUs. On this
    # machine, so that no other takes the actor along.
    address = ray.util.get_node_ip_address()
    place = tune.PlacementGroupFactory([{"memory": 1, f"node:{address}": 0.001}])
    here = tune.with_resources(tune.with_parameters(trainable, **parameters), place)
    # Ray takes the names of actors and their processes from here; Tune's would be that of a class of its own.
    here.__qualname__ = trainable.__name__
    forward = ForwardEvents(listener, group, trials)
    while True:
        with _no_actor_stays_stopped(trainable, group):
            outcomes = _tuner(here, trials, forward, storage=group.storage).fit()
        # Trials may end without their runs: Tune does not retry one whose actor dies while it turns to it.
        taken = len(trials.queue.taken) if trials.queue else 0
        left = trials.queue.take_back(forward.ended) if trials.queue else []
        if not left and (taken or not outcomes.errors):
            return
        if len(left) == taken:
            last_lines = (str(error).strip().splitlines()[-1].rstrip(".") for error in outcomes.errors)
            reason = next(last_lines, "it gives no reason")
            raise WorkerGroupError(f"Ray Tune ended before all runs had: {reason}; the same command runs the others.")


@contextlib.contextmanager
def _no_actor_stays_stopped(trainable: type[RunTrainable], group: WorkerGroup) -> Iterator[None]:
    over = threading.Event()
    look = functools.partial(end_stopped_actors, trainable.__name__, over, group.notify)
    threading.Thread(target=look, daemon=True, name="stopped-actors").start()
    try:
        yield
    finally:
        over.set()


def _tuner(trainable: Any, trials: TuneJobSet, forward: ForwardEvents, *, storage: str) -> tune.Tuner:
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            max_concurrent_trials=trials.at_once,
            reuse_actors=True,
            num_samples=trials.samples,
            search_alg=_InTurn(trials.queue) if trials.queue else trials.searcher,
            scheduler=trials.scheduler or _InOrder(),
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=storage,
            callbacks=[forward],
            # A run's state is its ranks'; by default Tune would save this actor's after each.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            # The Trainable is a proxy. A restarted one re-attaches to the same run.
            failure_config=tune.FailureConfig(max_failures=MAX_ACTOR_DEATHS),
            verbose=0,
            progress_reporter=_Silent(),
        ),
    )


class _Silent(tune.ProgressReporter):
    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        return False

    def report(self, trials: list[Any], done: bool, *sys_info: Any) -> None:
        """The live view reports."""
