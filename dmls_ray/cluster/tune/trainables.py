"""What Ray Tune is to run (`TuneJobSet`), its Trainables, each of which stands for a run, and runs of launchers."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ray.tune import Trainable

from dmls_ray.cluster.broker_client import BrokerClient
from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.scheduler.attempt import Attempt
from dmls_ray.cluster.scheduler.dispatcher import NEWS_INTERVAL_S, finished_run, skipped
from dmls_ray.cluster.scheduler.retry import Queued, retry
from dmls_ray.config.options import RunLimits
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import (
    EpochEnded,
    Progress,
    RankEvent,
    RankResult,
    RunAborted,
    RunEvent,
    RunFinished,
    RunStarted,
    SkipKind,
    is_last,
)

JobOf = Callable[[dict[str, Any]], Job]
"""Gives the run of a trial's configuration in Tune, in the driver and in Tune's actor."""


@dataclass(frozen=True, kw_only=True)
class TuneJobSet:
    """What Tune is to run."""

    job_of: JobOf
    run_ids: Iterator[str | None] | None = None
    """The runs, in their order, with None where others must end first; None where a searcher proposes them."""
    samples: int = -1
    """How many runs a searcher may propose; -1: until it has no more."""
    at_once: int | None = None
    """How many trials may be under way at the same time; None: as many as `run_ids` gives."""
    searcher: Any = None
    scheduler: Any = None
    metric: str = ""
    """What the searcher and the scheduler go by; empty where there is neither."""
    earlier: Mapping[str, float | None] = field(default_factory=dict)
    """By run: the metric of what has ended earlier, if a searcher should propose it again."""


def listed(jobs: Sequence[Job], run_ids: Iterator[str | None]) -> TuneJobSet:
    """Runs in an order.

    Args:
        jobs: all that may follow.
        run_ids: the runs in their order, with None where others must end first.
    """
    by_id = {job.run_id: job for job in jobs}
    return TuneJobSet(job_of=lambda config: by_id[config["run_id"]], run_ids=run_ids)


Launch = Callable[..., list[RankResult]]
"""`dmls_ray.launchers.command.run_command` with the driver's module path and working folder."""


class LaunchedRun:
    """One run under way, in a thread.

    Args:
        job: the run.
        launch: starts it, and returns the results of its ranks.
        limits: timeouts, retries and the memory of ranks.
    """

    def __init__(self, job: Job, launch: Launch, limits: RunLimits) -> None:
        self._job, self._launch, self._limits = job, launch, limits
        self._events: queue.Queue[RunEvent] = queue.Queue()
        self._under_way: Attempt | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"launched-{job.run_id}")
        self._thread.start()

    def events(self) -> list[RunEvent]:
        """Events since the last call, as soon as there are some; after `NEWS_INTERVAL_S`, as `Broker.events`."""
        try:
            events = [self._events.get(timeout=NEWS_INTERVAL_S)]
        except queue.Empty:
            return [self._under_way.progress_event()] if self._under_way else []
        while not self._events.empty():
            events.append(self._events.get())
        return events

    def _run(self) -> None:
        queued: Queued | None = Queued(self._job)
        try:
            while queued is not None:
                queued = self._attempt(queued)
        except BaseException as error:  # noqa: BLE001 - the sweep must learn what ended this thread
            self._events.put(RunAborted(reason=f"{type(error).__name__}: {error}"))

    def _attempt(self, queued: Queued) -> Queued | None:
        """Run one attempt; returns the run to queue again, or None if it was the last."""
        job = self._job
        names = [str(rank) for rank in range(job.config.world_size)]
        attempt = Attempt(job, job.run_id, names, queued.earlier, queued.retries_used)
        self._events.put(attempt.start_event())
        self._under_way = attempt

        def emit(event: RankEvent) -> None:
            attempt.progressed = time.monotonic()
            if not isinstance(event, Progress):
                self._events.put(event)

        def end_reason() -> str:
            attempt.overdue = attempt.overdue_reason(self._limits)
            return attempt.overdue

        config = job.config.replace(device=job.device)
        results = self._launch(
            config, train=job.train, identity=job.identity, artifacts=job.artifacts, emit=emit, end_reason=end_reason
        )
        for name, result in zip(names, results, strict=True):
            attempt.begun[name] = None
            if result.outcome == Outcome.KILLED:
                attempt.lose(name, result.reason)
            else:
                attempt.take(name, result)
        verdict = attempt.verdict()
        if attempt.lost and not verdict.traceback:
            log = next(result.traceback for result in results if str(result.rank) in attempt.lost)
            verdict = replace(verdict, traceback=log)
        again = retry(attempt, verdict, self._limits)
        if again is None:
            self._events.put(finished_run(attempt, verdict))
        return again


class RunTrainable(Trainable):
    """One run: submits it to the broker, and returns the broker's events."""

    def setup(self, config: dict[str, Any], **parts: Any) -> None:
        self._broker = BrokerClient(parts["broker"])
        self._job_of: JobOf = parts["job_of"]
        self._start_launched: Callable[[Job], LaunchedRun] = parts["launched"]
        self._take(config)

    def _take(self, config: dict[str, Any]) -> None:
        self._job = self._job_of(config)
        self._submitted = False
        self._launched: LaunchedRun | None = None

    @property
    def _owner(self) -> str:
        """Deduplication key; empty for a fixed list, in which every run occurs once."""
        return ""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._take(new_config)
        return True

    def step(self) -> dict[str, Any]:
        if self._job.config.launcher != "ray":
            return self._step_launched()
        if not self._submitted:
            self._submitted = True
            if not self._broker.call("submit", self._job, owner=self._owner):
                # A searcher has proposed the same run twice.
                return {"run_id": self._job.run_id, "events": [], "done": True}
        events: list[RunEvent] = self._broker.call("events", self._job.run_id)
        done = bool(events) and is_last(events[-1])
        return {"run_id": self._job.run_id, "events": events, "done": done}

    def _step_launched(self) -> dict[str, Any]:
        trial_id = self._job.trial_id
        if self._launched is None:
            if reason := self._broker.call("given_up", trial_id):
                return {"run_id": self._job.run_id, "events": [skipped(reason, SkipKind.GIVEN_UP)], "done": True}
            self._launched = self._start_launched(self._job)
        events = self._launched.events()
        last = events[-1] if events else None
        if isinstance(last, RunFinished):
            self._broker.call("has_ended", trial_id, last.verdict)
        return {"run_id": self._job.run_id, "events": events, "done": last is not None and is_last(last)}


class SearchTrainable(RunTrainable):
    """One run of a search: a step of it is an epoch, after which a scheduler decides whether it goes on."""

    def setup(self, config: dict[str, Any], **parts: Any) -> None:
        self._metric: str = parts["metric"]
        self._earlier: Mapping[str, float | None] = parts["earlier"]
        self._proposes: bool = parts["proposes"]
        super().setup(config, **parts)

    def _take(self, config: dict[str, Any]) -> None:
        super()._take(config)
        self._unread: deque[RunEvent] = deque()
        self._value: float | None = None
        self._attempt, self._epoch = 1, 0

    @property
    def _owner(self) -> str:
        # A searcher may propose a run twice.
        return str(self.trial_id) if self._proposes else ""

    def step(self) -> dict[str, Any]:
        job = self._job
        if job.run_id in self._earlier:
            return self._result([], self._earlier[job.run_id], done=True)
        if job.skip:
            return self._result([skipped(job.skip, SkipKind.INFEASIBLE)], None, done=True)
        if self._epoch and job.prunable:
            # The scheduler has let it go on; else there would be no step.
            self._broker.call("decide", job.run_id, self._attempt, self._epoch)
        events: list[RunEvent] = []
        while not events or not (isinstance(events[-1], EpochEnded) or is_last(events[-1])):
            if not self._unread:
                step = super().step()
                if step["done"] and not step["events"]:
                    return self._result([], None, done=True)
                self._unread.extend(step["events"])
                continue
            event = self._unread.popleft()
            events.append(event)
            if isinstance(event, RunStarted):
                self._attempt, self._epoch = event.attempt, 0
        last = events[-1]
        if isinstance(last, EpochEnded):
            self._epoch += 1
        self._value = reported_metric(last, self._metric, self._value)
        return self._result(events, self._value, done=is_last(last))

    def _result(self, events: list[RunEvent], value: float | None, *, done: bool) -> dict[str, Any]:
        measured = {} if value is None else {self._metric: value}
        return {"run_id": self._job.run_id, "events": events, "done": done, "epoch": self._epoch, **measured}


def reported_metric(event: RunEvent, metric: str, before: float | None = None) -> float | None:
    """The metric in this event, or its previous value if the event has none or it is not finite."""
    value: Any = None
    if isinstance(event, EpochEnded):
        value = event.epoch.metrics.get(metric)
    elif isinstance(event, RunFinished) and event.results:
        run = event.results[0].run
        value = (run.metrics | run.reported).get(metric)
    return value if isinstance(value, int | float) and math.isfinite(value) else before
