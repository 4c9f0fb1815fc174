"""`Watchdog`: ends runs that take too long, and ranks that hang."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from dmls_ray.cluster.messages import RankRegistration
from dmls_ray.cluster.scheduler.attempt import Attempt
from dmls_ray.cluster.scheduler.membership import Membership
from dmls_ray.config.run_limits import RunLimits

PEER_NOTIFY_DELAY_S = 2.0
"""Delay before surviving ranks are notified that a peer is gone; TCP reports nothing when a host is cut off."""

PEER_KILL_DELAY_S = 8.0
"""Delay before the processes of surviving ranks are killed, if the notice did not help."""

DEATH_DETECTION_TIMEOUT_S = 20.0
"""Upper bound on how long Ray takes to report a dead process, on a busy machine too."""

CHECK_INTERVAL_S = 0.5


class LoseRank(Protocol):
    """Removes a rank that does not serve any more."""

    def __call__(self, name: str, *, was_waiting: bool = False, reason: str = "") -> None: ...


class Watchdog:
    """Checks the clocks of runs: a rank that hangs reports nothing, and Ray does not notice it.

    Args:
        limits: timeouts.
        attempts: the attempts under way.
        members: the ranks.
        end_process: kills the process of a rank.
        lose_rank: called for each rank that was killed.
    """

    def __init__(
        self,
        limits: RunLimits,
        attempts: Mapping[str, Attempt],
        members: Membership,
        *,
        end_process: Callable[[RankRegistration], None],
        lose_rank: LoseRank,
    ) -> None:
        self._limits, self._attempts, self._members = limits, attempts, members
        self._end_process, self._lose_rank = end_process, lose_rank
        self._task: asyncio.Task[None] | None = None

    def run_while(self, is_needed: Callable[[], bool], after_check: Callable[[], None]) -> None:
        """Check in the background as long as there is something to check; does nothing if that is so already."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(is_needed, after_check))

    async def _run(self, is_needed: Callable[[], bool], after_check: Callable[[], None]) -> None:
        while is_needed():
            for attempt in list(self._attempts.values()):
                if reason := attempt.overdue_reason(self._limits):
                    attempt.overdue = reason
                    for name in attempt.pending:
                        self._kill(name)
                else:
                    self._unblock_survivors(attempt)
            self._kill_hung_ranks()
            after_check()
            await asyncio.sleep(CHECK_INTERVAL_S)

    def _unblock_survivors(self, attempt: Attempt) -> None:
        """End the wait of ranks that do not notice the loss of a peer.

        If a rank reports that a peer is gone and no rank is known to be lost, the network between them failed, perhaps
        for one side only.
        """
        lost_at = min(attempt.lost_at, attempt.missed_at + DEATH_DETECTION_TIMEOUT_S)
        since = time.monotonic() - lost_at
        if since > PEER_NOTIFY_DELAY_S and not attempt.interrupted:
            attempt.interrupted = True
            for name in attempt.pending:
                self._members.ranks[name].interrupt(tuple(attempt.lost_addresses))
        elif since > PEER_KILL_DELAY_S:
            for name in attempt.pending:
                self._kill(name, was_waiting=bool(attempt.lost), reason=attempt.missed)

    def _kill_hung_ranks(self) -> None:
        """Kill ranks without a run that have not asked for work for stall_timeout; Train replaces them."""
        if self._limits.stall_timeout is None:
            return
        since = time.monotonic() - self._limits.stall_timeout
        for name, rank in list(self._members.ranks.items()):
            if rank.attempt is None and rank.waiting is None and rank.free_since < since:
                self._kill(name)

    def _kill(self, name: str, *, was_waiting: bool = False, reason: str = "") -> None:
        self._end_process(self._members.ranks[name].registration)
        self._lose_rank(name, was_waiting=was_waiting, reason=reason)
