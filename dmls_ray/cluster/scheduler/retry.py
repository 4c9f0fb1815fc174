"""The retry rule: which runs are run again, what counts against them, and when a trial is given up.

The broker and runs under another launcher both follow it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.scheduler.attempt import Attempt, now
from dmls_ray.config.options import RunLimits
from dmls_ray.records.run_events import EarlierAttempt, Verdict

MAX_FREE_RETRIES = 5
"""Free retries for rank deaths that the run did not cause."""


@dataclass(frozen=True)
class Queued:
    """A run that waits for ranks."""

    job: Job
    earlier: tuple[EarlierAttempt, ...] = ()
    """Its attempts so far."""
    retries_used: int = 0
    """How many of them count against max_retries."""


def retry(attempt: Attempt, verdict: Verdict, limits: RunLimits) -> Queued | None:
    """The run to queue again after this attempt; None if the attempt was its last.

    A run is retried if a rank died or the ranks lost each other, its outcome is no answer, it was not stopped, and it
    has retries left. An attempt does not count against max_retries if no rank had begun (a rank that died while
    idle was leased before its death was known), or if every lost rank was not at fault.
    """
    has_lost_ranks = bool(attempt.lost) or attempt.is_disconnected
    if attempt.stopped or not has_lost_ranks or not verdict.outcome.is_retried():
        return None

    is_free = bool(attempt.lost) and (not attempt.begun or attempt.not_at_fault >= attempt.lost.keys())
    is_free = is_free and len(attempt.earlier) - attempt.retries_used < MAX_FREE_RETRIES
    retries_used = attempt.retries_used if is_free else attempt.retries_used + 1
    if retries_used > limits.max_retries:
        return None

    ended = EarlierAttempt(
        attempt=attempt.number,
        outcome=verdict.outcome.value,
        reason=verdict.reason,
        seconds=round(now() - attempt.started, 3),
    )
    return Queued(attempt.job, (*attempt.earlier, ended), retries_used)


class FailureCounter:
    """Counts equal failures in a row of each trial."""

    def __init__(self, give_up_after: int) -> None:
        self._give_up_after = give_up_after
        self._counts: dict[str, tuple[str, int]] = {}

    def note(self, trial_id: str, verdict: Verdict) -> None:
        """Count the end of a run of the trial."""
        if not verdict.outcome.gives_up_trial():
            self._counts.pop(trial_id, None)
            return
        # Messages of one failure differ in their numbers; the exception's name does not.
        failure = f"{verdict.outcome.value}: {verdict.reason.partition(':')[0]}"
        before, count = self._counts.get(trial_id, ("", 0))
        self._counts[trial_id] = (failure, count + 1 if failure == before else 1)

    def give_up_reason(self, trial_id: str) -> str:
        """Why further runs of the trial are skipped; empty if they are not."""
        failure, count = self._counts.get(trial_id, ("", 0))
        if count < self._give_up_after:
            return ""
        return f"given up after {count} equal failures ({failure})"
