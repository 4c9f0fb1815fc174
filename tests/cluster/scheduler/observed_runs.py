"""`ObservedRuns`: what can be seen of runs from outside of the scheduler, and the rules that it is to follow."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from dmls_ray.cluster.messages import Lease
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.cluster.scheduler.retry import MAX_FREE_RETRIES
from dmls_ray.cluster.scheduler.watchdog import PEER_KILL_DELAY_S
from dmls_ray.config.options import RunLimits
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RunFinished, SkipKind

DETECTION_S = 2.0
"""Seconds until Ray Train looks at its workers again."""

SLACK_S = 2.0
"""How much later than its clocks the scheduler may act."""


@dataclass
class Plan:
    """What a run does."""

    world_size: int = 1
    crashes: int = 0
    """In how many of its attempts the process of its first rank dies."""
    crashes_early: bool = False
    """Whether that is before the rank has begun."""
    stopped_after: int = 0
    """The epoch after which the driver stops it; 0: the driver does not ask for its epochs."""

    def crash(self) -> str:
        """When this attempt crashes, if it does."""
        self.crashes -= 1
        return "" if self.crashes < 0 else "early" if self.crashes_early else "late"


@dataclass
class Seen:
    """An attempt, from outside."""

    ranks: set[int] = field(default_factory=set)
    """The ranks that have begun."""
    progressed: float = 0.0
    crashed_at: float = math.inf
    """When the first of its processes ended by itself."""
    left: int = 0
    """How many of its processes ended because their machine left."""


class ObservedRuns:
    """Attempts at runs.

    Args:
        limits: of runs.
        ranks: how many there are as long as no machine leaves.
    """

    def __init__(self, limits: RunLimits, ranks: int) -> None:
        self.limits, self.ranks = limits, ranks
        self.has_lost_machines = False
        self.left: set[str] = set()
        """Trainers whose machine has left."""
        self.may_abort = False
        """Ranks may have failed to start, again and again."""
        self.attempts: dict[str, Seen] = {}
        """By lease."""
        self.dead: dict[str, float] = {}
        """When the process of a rank ended, by the rank's name."""
        self.over: set[str] = set()
        """Trainers that the scheduler knows to be over."""
        self.unwanted: dict[str, set[str]] = {}
        """Runs that were stopped, with the leases of that time."""

    def taken(self, lease: Lease, plan: Plan) -> None:
        """A process takes its part in a run."""
        run_id = lease.job.run_id
        if lease.lease_id not in self.attempts:
            is_wanted = lease.lease_id in self.unwanted.get(run_id, {lease.lease_id})
            assert is_wanted, "a run starts that is not wanted any more"
            number = int(lease.lease_id.rpartition("/")[2])
            assert number <= 1 + self.limits.max_retries + MAX_FREE_RETRIES, "a run starts again without end"
        seen = self.attempts.setdefault(lease.lease_id, Seen())
        assert lease.rank.rank not in seen.ranks, "two processes have the same part in a run"
        assert lease.rank.world_size == plan.world_size
        seen.ranks.add(lease.rank.rank)
        self.progressed(lease)

    def progressed(self, lease: Lease) -> None:
        """A rank gets on with its run."""
        if lease.lease_id in self.attempts:
            self.attempts[lease.lease_id].progressed = asyncio.get_running_loop().time()

    def ended(self, name: str, lease: Lease | None, *, crashed: bool = False, left: bool = False) -> None:
        """A process ends: by itself, with its machine, or because it is killed."""
        now = self.dead[name] = asyncio.get_running_loop().time()
        if lease is not None and lease.lease_id in self.attempts:
            seen = self.attempts[lease.lease_id]
            seen.left += left
            if crashed:
                seen.crashed_at = min(seen.crashed_at, now)

    def machine_left(self, trainer: str) -> None:
        """The machine of a trainer leaves."""
        self.has_lost_machines = True
        self.left.add(trainer)

    def finished(self, run_id: str, plan: Plan, event: RunFinished) -> None:
        """The driver reads the end of a run."""
        outcome = event.verdict.outcome
        if event.verdict.skip is SkipKind.NO_RANKS:
            assert self.has_lost_machines or plan.world_size > self.ranks, "a run is skipped for which there were ranks"
        if outcome is Outcome.SKIPPED:
            return
        assert event.attempts == len(event.earlier) + 1
        for item in event.results:
            assert item.run.reported["lease"].endswith(f"/{run_id}/{event.attempts}"), (
                "a result belongs to another attempt"
            )

        failed = [item for item in event.results if item.outcome is not Outcome.OK]
        if causes := {item.outcome for item in failed if not item.is_symptom}:
            assert outcome in causes
        elif outcome in (Outcome.OK, Outcome.ERROR):
            assert len(event.results) == plan.world_size, "a run that has lost a rank has another outcome"
            assert bool(failed) == (outcome is Outcome.ERROR)
        if outcome in (Outcome.KILLED, Outcome.TIMEOUT) and run_id not in self.unwanted:
            assert event.attempts > self.limits.max_retries, "a run is not run again although it has retries left"
            ends = f"/{run_id}/{event.attempts}"
            left = [seen.left for lease_id, seen in self.attempts.items() if lease_id.endswith(ends)]
            assert plan.world_size not in left or event.attempts > MAX_FREE_RETRIES, (
                "a run is charged for a machine that has left"
            )

    def check(self, broker: Broker, now: float) -> None:
        """The rules that hold at any time."""
        reason = broker.dispatcher.aborted.reason if broker.dispatcher.aborted else ""
        assert not reason or (self.may_abort and not reason.startswith("the scheduler failed")), reason
        if reason:
            assert not [*broker.dispatcher.attempts, *broker.dispatcher.queues], "runs go on after an abort"
            return
        for name in broker.members.ranks:
            assert name.partition("/")[0] not in self.over, "a trainer that is over has ranks"
        serving: set[str] = set()
        for attempt in broker.dispatcher.attempts.values():
            for name in attempt.pending:
                assert name not in serving, "a rank serves two runs"
                assert broker.members.ranks[name].attempt is attempt
                assert not self.dead.get(name, math.inf) < attempt.started, "a run starts on a process that has ended"
                serving.add(name)
            self._check_clocks(attempt.lease_id, attempt.started, now, prunable=attempt.job.prunable)

    def is_over(self, lease: Lease, trainer: str, broker: Broker) -> bool:
        """Whether the broker has ended the attempt of a lease that it gave to a machine that is there."""
        is_of_broker = lease.lease_id in self.attempts and broker.dispatcher.aborted is None
        return is_of_broker and trainer not in self.left and lease.lease_id not in broker.dispatcher.attempts

    def _check_clocks(self, lease_id: str, started: float, now: float, *, prunable: bool) -> None:
        seen = self.attempts.get(lease_id, Seen())
        limits = self.limits
        if limits.run_timeout is not None:
            assert now - started < limits.run_timeout + SLACK_S, "a run exceeds run_timeout"
        if limits.stall_timeout is not None and not prunable:
            since = now - max(started, seen.progressed)
            assert since < limits.stall_timeout + SLACK_S, "a run exceeds stall_timeout"
        since = now - seen.crashed_at
        assert since < DETECTION_S + PEER_KILL_DELAY_S + SLACK_S, "ranks wait for one that has ended"
