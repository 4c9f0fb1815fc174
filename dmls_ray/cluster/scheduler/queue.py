"""The queue of runs: which of them starts, waits or is skipped, is run again after a death, or is given up.

Runs under another launcher than Ray follow `retry` too.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field

from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.resources import RankRequest, place_ranks
from dmls_ray.cluster.scheduler.attempt import Attempt, now
from dmls_ray.cluster.scheduler.membership import Membership
from dmls_ray.config.run_limits import RunLimits
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


@dataclass(frozen=True)
class Decision:
    """What becomes of the first run of the queue: it starts on ranks, or it is skipped."""

    queued: Queued
    ranks: list[str] = field(default_factory=list)
    skip: str = ""
    """Why the run is skipped."""


class RunQueue(deque[Queued]):
    """Runs in the order in which they start.

    Args:
        members: the ranks.
        exclusive: start one run at a time (bench mode), or as many as there are ranks for.
        wait_for_ranks: seconds that a run waits for ranks whose machine has left.
    """

    def __init__(self, members: Membership, *, exclusive: bool, wait_for_ranks: float) -> None:
        super().__init__()
        self._members, self._exclusive, self._wait_for_ranks = members, exclusive, wait_for_ranks

    def pop_retry(self, run_id: str) -> Queued | None:
        """Remove a run that waits for its retry; None if it does not."""
        # Retries are at the front; behind them may be thousands of runs.
        retries = itertools.takewhile(lambda queued: queued.earlier, self)
        queued = next((queued for queued in retries if queued.job.run_id == run_id), None)
        if queued is not None:
            self.remove(queued)
        return queued

    def cancel(self, run_id: str) -> None:
        """Remove a run."""
        kept = [queued for queued in self if queued.job.run_id != run_id]
        self.clear()
        self.extend(kept)

    def next_decision(self, *, busy: bool) -> Decision | None:
        """What becomes of the first run now; None: it waits.

        Args:
            busy: whether a run is under way.
        """
        members = self._members
        if not self or (self._exclusive and busy) or not members.is_complete:
            return None
        if self._exclusive and members.has_rank_not_yet_idle:
            return None

        request = RankRequest.of(self[0].job.config)
        if chosen := place_ranks(members.idle_slots, request):
            return Decision(self.popleft(), ranks=members.take_idle(chosen))
        # The run gets its ranks once others have returned theirs, or once missing machines are back.
        may_fit_later = bool(place_ranks(members.all_slots, request))
        if may_fit_later or members.wait_until(self._wait_for_ranks) > now():
            return None
        return Decision(self.popleft(), skip=self._too_few_ranks(request))

    def _too_few_ranks(self, request: RankRequest) -> str:
        departed = f" since {', '.join(self._members.departed)} left" if self._members.departed else ""
        return (
            f"{request} finds {len(self._members.ranks)} ranks{departed}, after {self._wait_for_ranks:g} s "
            "(wait_for_ranks); the same command runs it once its machines are back."
        )
