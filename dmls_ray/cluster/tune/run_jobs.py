"""`run_jobs`: Ray Tune owns one trial per run, and one actor that is reused from run to run.

`ForwardEvents` is its callback in the driver.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from dmls_ray.cluster.tune.trainables import (
    Launch,
    LaunchedRun,
    RunTrainable,
    SearchTrainable,
    TuneJobSet,
)
from dmls_ray.cluster.worker_group import WorkerGroup
from dmls_ray.records.run_events import RunEvent, is_last
from dmls_ray.util.errors import ClusterLostError
from dmls_ray.util.importing import module_path
from dmls_ray.util.text import first_line

Listener = Callable[[dict[str, Any], RunEvent], None]
"""Called in the driver with the configuration of a trial in Tune, and each event of its run."""

Check = Callable[[bool], None]
"""Called with whether the scheduler has answered since the last call. It does so at least every `NEWS_INTERVAL_S`."""

DEATH_INTERVAL_S = 1.0
"""Seconds after which a death is known that was the cause of another."""


class _InTurn(Searcher):
    """Proposes runs in their order. Unlike a grid of Tune's, it can say late that there are more."""

    def __init__(self, run_ids: Iterator[str | None]) -> None:
        super().__init__()
        self._run_ids = run_ids

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        try:
            run_id = next(self._run_ids)
        except StopIteration:
            return Searcher.FINISHED
        # None: Tune asks again when another trial has ended.
        return run_id and {"run_id": run_id}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """The listener learns from events how runs end."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """We resume from runs.jsonl."""

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its searcher to restore a sweep.
        return {}


class _EndedError(BaseException):
    """Takes an error out of Tune, which catches every `Exception` of a callback or cleans up before it passes it on."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class ForwardEvents(tune.Callback):
    """Passes the events of all runs to a listener in the driver, and ends the sweep when a part of it is gone.

    Args:
        listener: receives the events.
        group: serves the runs.
        trials: the runs.
        check: as of `run_jobs`.
    """

    def __init__(self, listener: Listener, group: WorkerGroup, trials: TuneJobSet, check: Check) -> None:
        self._listener, self._group, self._trials, self._check = listener, group, trials, check
        self._complete: set[str] = set()
        """Tune trials without further events."""
        self._has_answered = False
        """Whether there was an answer since the last check."""

    def __getstate__(self) -> dict[str, Any]:
        # Tune saves its callbacks to restore a sweep. We resume from runs.jsonl, and a listener lives here alone.
        return {}

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._has_answered = True
        run_id, events = result["run_id"], result["events"]
        if not self._trials.metric:
            # Tune keeps each trial's last result until the sweep's end, and statistics of every number in it.
            for name in result.keys() - {"run_id", "trial_id"}:
                del result[name]
        if not events and result.get("done"):
            self._complete.add(trial.trial_id)  # its run had ended earlier, or belongs to another trial
        for event in events:
            self._pass_on(trial, run_id, event)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """End the run of a trial that a scheduler has stopped: its ranks wait for the decision."""
        if trial.trial_id in self._complete:
            return
        run_id = self._trials.job_of(trial.config).run_id
        try:
            self._group.broker.call("decide", run_id, 0, None)  # in whichever attempt
            while trial.trial_id not in self._complete:
                for event in self._group.broker.call("events", run_id):
                    self._pass_on(trial, run_id, event)
        except ray.exceptions.RayError as error:
            raise _EndedError(error) from error

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial is a proxy of a run, whose failures are events: its error is the death of a process."""
        time.sleep(DEATH_INTERVAL_S)
        self.on_step_end(iteration, trials)  # raises, if it finds the death of another process
        raise _EndedError(ClusterLostError("Ray Tune's actor died"))

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Called by Tune's loop."""
        # A run of a search answers after each epoch only.
        has_answered = self._has_answered or bool(self._trials.metric)
        self._has_answered = False
        try:
            self._check(has_answered)
        except (ClusterLostError, ray.exceptions.RayError) as error:
            raise _EndedError(error) from error

    def _pass_on(self, trial: Any, run_id: str, event: RunEvent) -> None:
        try:
            self._listener(trial.config, event)
        except Exception as error:  # Tune would log it and go on
            raise _EndedError(error) from error
        if is_last(event):
            self._complete.add(trial.trial_id)
            self._group.broker.submit("forget", run_id)


def run_jobs(group: WorkerGroup, trials: TuneJobSet, listener: Listener, *, launch: Launch, check: Check) -> None:
    """Run the trials, and pass each event to the listener as it comes.

    Args:
        group: serves those whose launcher is ray.
        trials: the runs.
        listener: called in this process; an error of it ends the sweep.
        launch: runs those of another launcher.
        check: called at each step of Tune's loop, ten times a second or more; an error of it ends the sweep.

    Raises:
        ClusterLostError: a process of the sweep died.
        Exception: as the listener.
    """
    parameters: dict[str, Any] = {
        "broker": group.name,
        "job_of": trials.job_of,
        "launched": functools.partial(
            LaunchedRun,
            launch=functools.partial(launch, path=module_path(), cwd=os.getcwd()),
            limits=group.limits,
        ),
    }
    trainable: type[RunTrainable] = RunTrainable
    if trials.metric:
        trainable = SearchTrainable
        parameters |= {"metric": trials.metric, "earlier": trials.earlier, "proposes": trials.run_ids is None}
    # By default Tune reserves a CPU per trial, and it refuses none at all; the ranks need all CPUs. On this
    # machine, so that no other takes the actor along.
    address = ray.util.get_node_ip_address()
    place = tune.PlacementGroupFactory([{"memory": 1, f"node:{address}": 0.001}])
    here = tune.with_resources(tune.with_parameters(trainable, **parameters), place)
    # Ray takes the names of actors and their processes from here; Tune's would be that of a class of its own.
    here.__qualname__ = trainable.__name__
    forward = ForwardEvents(listener, group, trials, check)
    try:
        _tuner(here, trials, forward, storage=group.storage).fit()
    except _EndedError as ended:
        if isinstance(ended.error, ray.exceptions.RayError):
            raise ClusterLostError(f"A process of the sweep died ({first_line(ended.error)})") from ended.error
        raise ended.error from None


def _tuner(trainable: Any, trials: TuneJobSet, forward: ForwardEvents, *, storage: str) -> tune.Tuner:
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            max_concurrent_trials=trials.at_once,
            reuse_actors=True,
            num_samples=trials.samples,
            search_alg=_InTurn(trials.run_ids) if trials.run_ids else trials.searcher,
            scheduler=trials.scheduler,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=storage,
            callbacks=[forward],
            # A run's state is its ranks'; by default Tune would save this actor's after each.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            verbose=0,
        ),
    )
