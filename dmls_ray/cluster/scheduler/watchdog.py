"""`Watchdog`: ends runs that take too long, ranks that hang, and the wait for ranks that do not come."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from dmls_ray.cluster.scheduler.attempt import Attempt, now
from dmls_ray.cluster.scheduler.membership import Membership, Trainer
from dmls_ray.config.options import RunLimits

PEER_KILL_DELAY_S = 8.0
"""Delay before surviving ranks are killed that wait for a lost one, of whose end TCP (a host without power) or NCCL
report nothing."""

DEATH_DETECTION_TIMEOUT_S = 20.0
"""Upper bound on how long Ray takes to report a dead process, on a busy machine too."""

CHECK_INTERVAL_S = 0.5
"""Interval in which the clocks of runs and ranks are looked at."""


@dataclass(frozen=True)
class Watchdog:
    """The clocks of runs and ranks: neither a rank that hangs nor one that is missing reports anything."""

    limits: RunLimits
    members: Membership
    kill: Callable[..., None]
    """Ends the process of a rank, and removes the rank; as `Dispatcher.lose`."""
    give_up: Callable[..., None]
    """Ends the wait for the ranks of a trainer; as `Dispatcher.give_up`."""

    def check(self, attempts: Collection[Attempt]) -> None:
        """Act on all clocks that have run out, of these attempts and of the ranks without one."""
        for attempt in attempts:
            if reason := attempt.overdue_reason(self.limits):
                attempt.overdue = reason
                for name in attempt.pending:
                    self.kill(name)
                continue
            # If a rank reports that a peer is gone and no rank is known to be lost, the network between them failed,
            # perhaps for one side only: ranks may not notice the loss.
            lost_at = min(attempt.lost_at, attempt.missed_at + DEATH_DETECTION_TIMEOUT_S)
            if now() - lost_at > PEER_KILL_DELAY_S:
                for name in attempt.pending:
                    self.kill(name, was_waiting=bool(attempt.lost), reason=attempt.missed)
        stall_timeout = self.limits.stall_timeout
        for name, rank in list(self.members.ranks.items()):
            # Train replaces a rank without a run that has not asked for work for so long.
            is_asking = rank.attempt is not None or rank.waiting is not None
            if not is_asking and stall_timeout is not None and now() - rank.free_since > stall_timeout:
                self.kill(name)
        for name, trainer in list(self.members.trainers.items()):
            self._check_trainer(name, trainer)

    def _check_trainer(self, name: str, trainer: Trainer) -> None:
        """End the wait for missing ranks of a trainer. No run waits for one that is arriving: it may take its time."""
        if trainer.missing_since is None or trainer.is_arriving:
            return
        timeout = trainer.timeout(self.limits.wait_for_ranks)
        if now() - trainer.missing_since <= timeout:
            return
        count = f"{trainer.expected.ranks - trainer.present} of {trainer.expected.ranks} ranks{trainer.where}"
        if trainer.has_served:
            self.give_up(name, f"{count} did not come back within {timeout:g} s", is_lost=True)
        else:
            reason = f"{count} did not start within {timeout:g} s; a longer --wait-for-ranks waits for a full cluster"
            self.give_up(name, reason)
