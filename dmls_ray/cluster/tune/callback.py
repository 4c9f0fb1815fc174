"""`ForwardEvents`: Tune's callback in the driver."""

from __future__ import annotations

from typing import Any

from ray.tune import Callback

from dmls_ray.cluster.tune.job_set import Listener, TuneJobSet
from dmls_ray.cluster.worker_group import WorkerGroup
from dmls_ray.records.run_events import (
    RunEvent,
    RunStarted,
    RunUnknown,
    is_last,
)


class ForwardEvents(Callback):
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
            self._group.note_controllers()
        if isinstance(event, RunUnknown):
            # The broker has died, and the run with it; the same command runs it again.
            self._complete.add(trial.trial_id)
            return
        self._listener(trial.config, event)
        if is_last(event):
            self._complete.add(trial.trial_id)
            self.ended.add(run_id)
            self._group.broker.submit("forget", run_id)
