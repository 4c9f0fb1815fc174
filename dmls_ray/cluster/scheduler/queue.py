"""`RunQueue`: runs that wait for ranks, and the rule that decides which of them starts, waits or is skipped."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field

from dmls_ray.cluster.placement import RankRequest, place_ranks
from dmls_ray.cluster.scheduler.clock import now
from dmls_ray.cluster.scheduler.membership import Membership
from dmls_ray.cluster.scheduler.retry import Queued


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
