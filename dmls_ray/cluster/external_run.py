"""A run that another launcher than Ray's worker group runs: followed as the broker follows the group's."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from dmls_ray.cluster.messages import Job, Limits
from dmls_ray.cluster.scheduler.attempt import Attempt, Queued
from dmls_ray.records.outcome import Outcome

Launch = Callable[..., list[dict[str, Any]]]
"""`dmls_ray.launchers.command.run_command`, which knows where the user's modules and files are."""


class LaunchedRun:
    """One run on its way; its events are those that the broker would tell.

    Args:
        job: the run.
        launch: runs it, and returns its ranks' results.
        limits: how long it may take, and how often it is tried.
    """

    def __init__(self, job: Job, launch: Launch, limits: Limits) -> None:
        self._job, self._launch, self._limits = job, launch, limits
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"launched-{job.run_id}")
        self._thread.start()

    def events(self) -> list[dict[str, Any]]:
        """What has happened since the last call, once something has; the last event's kind is `done` or `aborted`."""
        events = [self._events.get()]
        while not self._events.empty():
            events.append(self._events.get())
        return events

    def cancel(self) -> None:
        """End it, and wait for its processes to be gone."""
        self._cancelled.set()
        self._thread.join()

    def _run(self) -> None:
        queued: Queued | None = Queued(self._job)
        try:
            while queued is not None:
                queued = self._attempt(queued)
        except Exception as error:  # noqa: BLE001 - the sweep must be told whatever ended this thread
            self._events.put({"kind": "aborted", "reason": f"{type(error).__name__}: {error}"})

    def _attempt(self, queued: Queued) -> Queued | None:
        job = self._job
        names = [str(rank) for rank in range(job.config.world_size)]
        attempt = Attempt(job, job.run_id, names, queued.earlier, queued.charged)
        self._events.put({"kind": "start", "attempt": attempt.number})

        def emit(event: dict[str, Any]) -> None:
            attempt.progressed = time.monotonic()
            if event["kind"] != "progress":
                self._events.put(event)

        def overdue() -> str:
            attempt.overdue = "cancelled" if self._cancelled.is_set() else attempt.is_overdue(self._limits)
            return attempt.overdue

        results = self._launch(
            job.config.replace(device=job.device), train=job.train, artifacts=job.artifacts, emit=emit, overdue=overdue
        )
        for name, result in zip(names, results, strict=True):
            attempt.begun[name] = None
            if result["outcome"] == Outcome.KILLED:
                attempt.lost[name] = result["reason"]
            else:
                attempt.results[name] = result
        verdict = attempt.verdict()
        if attempt.lost and not verdict["traceback"]:
            verdict["traceback"] = next(
                item.get("traceback", "") for item in results if str(item["rank"]) in attempt.lost
            )
        again = attempt.again(verdict, self._limits) if attempt.lost and not self._cancelled.is_set() else None
        if again is None:
            done = {"attempts": attempt.number, "earlier": attempt.earlier, "results": list(attempt.results.values())}
            self._events.put({"kind": "done", **verdict, **done})
        return again
