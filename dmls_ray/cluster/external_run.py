"""`LaunchedRun`: a run under a launcher other than Ray's worker group; it reports the same events as the broker."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.scheduler.attempt import Attempt
from dmls_ray.cluster.scheduler.dispatcher import NEWS_INTERVAL_S, finished_run
from dmls_ray.cluster.scheduler.retry import Queued, retry
from dmls_ray.config.run_limits import RunLimits
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import Progress, RankEvent, RankResult, RunAborted, RunEvent

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
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"launched-{job.run_id}")
        self._thread.start()

    def events(self) -> list[RunEvent]:
        """Events since the last call, as soon as there are some; none after `NEWS_INTERVAL_S`."""
        try:
            events = [self._events.get(timeout=NEWS_INTERVAL_S)]
        except queue.Empty:
            return []
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
