"""Ray Tune's part: it owns the trials, one a run, and one actor that is reused from run to run."""

from __future__ import annotations

import contextlib
import functools
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray import tune
from ray.tune import Callback, Trainable

from dmls_ray.cluster.actors import BrokerLine
from dmls_ray.cluster.launched import Launch, LaunchedRun
from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.pool import WorkerGroup, make_trainer
from dmls_ray.errors import WorkerGroupError

_ACTORS_MAY_DIE = 5
"""How often Tune's actor may die within one run."""

Listener = Callable[[str, dict[str, Any]], None]
"""Called in the driver with a run's id and each of its events."""


class RunTrainable(Trainable):
    """One run: hands it to the broker and passes on what the broker tells of it."""

    _submitted: bool
    _launched: LaunchedRun | None
    _brokers_before: int
    _job: Job

    def setup(self, config: dict[str, Any], **parts: Any) -> None:
        self._broker = BrokerLine(parts["broker"])
        self._jobs: dict[str, Job] = parts["jobs"]
        self._start_launched: Callable[[Job], LaunchedRun] = parts["launched"]
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._take(new_config)
        return True

    def step(self) -> dict[str, Any]:
        if self._job.config.launcher != "ray":
            return self._step_launched()
        events = self._events()
        while events[-1]["kind"] == "unknown":
            # The broker is a new one. What had been told of the run is told again, from its start.
            if self._submitted:
                self._brokers_before += 1
                self.end()
            self._submitted = True
            self._broker.call("submit", self._job, self._brokers_before)
            self.begin(self._job)
            events = self._events()
        done = events[-1]["kind"] in ("done", "aborted")
        if done:
            self.end()
        return {"run_id": self._job.run_id, "events": events, "done": done}

    def _step_launched(self) -> dict[str, Any]:
        if self._launched is None:
            self._launched = self._start_launched(self._job)
        events = self._launched.events()
        return {"run_id": self._job.run_id, "events": events, "done": events[-1]["kind"] in ("done", "aborted")}

    def _events(self) -> list[dict[str, Any]]:
        if self._submitted:
            with contextlib.suppress(ray.exceptions.RayActorError):
                events: list[dict[str, Any]] = self._broker.call_once("events", self._job.run_id)
                return events
        return [{"kind": "unknown"}]

    def begin(self, job: Job) -> None:
        """Called when the run is queued; here the group's ranks serve it."""

    def end(self) -> None:
        """Called when the run is over; here the group's ranks stay."""

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {}  # a run's state is its ranks'; Tune asks all the same before it reuses this actor

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing was saved."""

    def cleanup(self) -> None:
        if self._done:
            return
        if self._launched is not None:
            self._launched.cancel()
        else:
            self._broker.tell("cancel", self._job.run_id)

    def _take(self, config: dict[str, Any]) -> None:
        self._job = self._jobs[config["run_id"]]
        self._submitted = False
        self._launched = None
        self._brokers_before = 0

    @property
    def _done(self) -> bool:
        return self._last_result is not None and bool(self._last_result.get("done"))


class IsolatedRunTrainable(RunTrainable):
    """The documented pattern, a TorchTrainer a run: its ranks join the same broker, serve this one run, and end."""

    def setup(self, config: dict[str, Any], **parts: Any) -> None:
        self._group = parts["group"]
        super().setup(config, **parts)

    def begin(self, job: Job) -> None:
        ranks = job.config.world_size
        self._broker.call("expect", ranks)
        # A name that was used before would be taken up from there by Train.
        self._trainer = f"{self._group['settings']['trainer']}-{job.run_id}-{uuid.uuid4().hex[:8]}"
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
            self._broker.tell("abort", f"Ray Train's worker group failed: {error}")


class _Forward(Callback):
    def __init__(self, listener: Listener, group: WorkerGroup) -> None:
        self._listener, self._group = listener, group

    def __getstate__(self) -> dict[str, Any]:
        # Tune saves its callbacks to restore a sweep. We resume from runs.jsonl, and a listener lives here alone.
        return {}

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        for event in result["events"]:
            if event["kind"] == "start":
                self._group.note_controllers()
            self._listener(result["run_id"], event)
            if event["kind"] == "done":
                self._group.broker.tell("forget", result["run_id"])


def run_jobs(group: WorkerGroup, jobs: Sequence[Job], listener: Listener, *, isolation: str, launch: Launch) -> None:
    """Run the jobs in their order, one at a time, and tell the listener of each event as it comes.

    Args:
        group: serves those whose launcher is ray.
        jobs: the runs.
        listener: called in this process.
        isolation: `group` or `per_run`.
        launch: runs those of another launcher.

    Raises:
        WorkerGroupError: a trial ended in Ray and not in its run.
    """
    parameters: dict[str, Any] = {
        "broker": group.name,
        "jobs": {job.run_id: job for job in jobs},
        "launched": functools.partial(
            LaunchedRun, launch=launch, path=group.settings(group.name)["path"], limits=group.limits
        ),
    }
    trainable: type[RunTrainable] = RunTrainable
    if isolation == "per_run":
        trainable = IsolatedRunTrainable
        parameters["group"] = {
            "settings": group.settings(group.name, max_leases=1),
            "per_rank": group.per_rank,
        }
    # Tune reserves a CPU a trial unless told otherwise, and refuses none at all; the ranks need them all.
    here = tune.with_resources(tune.with_parameters(trainable, **parameters), {"memory": 1})
    tuner = tune.Tuner(
        here,
        param_space={"run_id": tune.grid_search([job.run_id for job in jobs])},
        tune_config=tune.TuneConfig(max_concurrent_trials=1, reuse_actors=True),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(group.storage),
            callbacks=[_Forward(listener, group)],
            # Tune's actor only stands for the run; where it dies, another asks the broker on.
            failure_config=tune.FailureConfig(max_failures=_ACTORS_MAY_DIE),
            verbose=0,
            progress_reporter=_Silent(),
        ),
    )
    outcomes = tuner.fit()
    for error in outcomes.errors:
        # The trial ended without its run having ended: Tune's actor or the broker is gone.
        raise WorkerGroupError(f"Ray lost its hold of the sweep: {str(error).strip().splitlines()[-1]}.")


class _Silent(tune.ProgressReporter):
    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        return False

    def report(self, trials: list[Any], done: bool, *sys_info: Any) -> None:
        """The live view reports."""
