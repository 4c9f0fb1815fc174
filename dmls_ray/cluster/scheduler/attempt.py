"""`Attempt`: one attempt at a run, the state of its ranks, and the outcome that follows from it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dmls_ray.cluster.messages import Job
from dmls_ray.config.options import RunLimits
from dmls_ray.records.model import FIRST_LANE
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EarlierAttempt, RankResult, RunProgressed, RunStarted, Verdict


def now() -> float:
    """Seconds on the scheduler's clock, which is never set back. Tests replace it, so that waiting takes no time."""
    return time.monotonic()


def oom_kill_evidence(before: int | None, after: int | None, machine: str) -> str:
    """Evidence of a lack of memory: the kernel's count of killed processes has grown. Empty if there is none."""
    if before is None or after is None or after <= before:
        return ""
    return f"out of memory, the kernel ended {after - before} process{'es' if after - before > 1 else ''} on {machine}"


@dataclass
class Attempt:
    """One attempt at a run."""

    job: Job
    lease_id: str
    ranks: Sequence[str]
    earlier: Sequence[EarlierAttempt] = ()
    """The attempts before this one."""
    retries_used: int = 0
    """How many of them count against max_retries."""
    lane: int = FIRST_LANE
    """Number of the lane of its ranks."""
    machines: list[dict[str, Any]] = field(default_factory=list)
    """Description of each machine of its ranks, the first rank's first."""
    results: dict[str, RankResult] = field(default_factory=dict)
    """By rank, in the order of arrival: the first that is not ok is the cause."""
    lost: dict[str, str] = field(default_factory=dict)
    """Ranks that will not return, and the reason if it is known."""
    lost_at: float = math.inf
    """When the first rank was lost."""
    missed_at: float = math.inf
    """When a rank first reported that another is gone."""
    not_at_fault: set[str] = field(default_factory=set)
    """Lost ranks that do not count against the run: restarted together with a dead neighbour, on a departed machine, or
    killed while waiting for a lost rank."""
    ended: set[str] = field(default_factory=set)
    """Lost ranks that were killed while they waited for a lost rank."""
    begun: dict[str, int | None] = field(default_factory=dict)
    """Ranks that have begun, and the kernel's count of processes killed for lack of memory at that time."""
    oom_kill: str = ""
    """Evidence that a rank was killed for lack of memory."""
    overdue: str = ""
    """Why the attempt was ended early."""
    started: float = field(default_factory=now)
    progressed: float = field(default_factory=now)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    reported: int = 0
    """Number of epochs that the driver knows of."""
    decided: int = 0
    """Number of epochs that the run may finish."""
    stopped: bool = False
    """The run is to stop."""
    decision: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, at each decision."""

    async def may_continue(self, epochs: int) -> bool:
        """Wait for the decision after a rank has ended so many epochs; a run that is not prunable always continues."""
        if not self.job.prunable:
            return True
        while not self.stopped and self.decided < epochs:
            await self.decision.wait()
        self.progressed = now()
        # A decision that was made before this epoch holds on every rank; a stop between two ranks' calls, for both.
        return self.decided >= epochs

    def decide(self, *, epochs: int | None) -> None:
        """Let the run continue after this many epochs; None: stop it."""
        self.stopped = epochs is None
        self.decided = max(self.decided, epochs or 0)
        self.decision.set()
        self.decision = asyncio.Event()

    @property
    def number(self) -> int:
        """From 1."""
        return len(self.earlier) + 1

    def start_event(self) -> RunStarted:
        """What the sweep receives at its start."""
        after = self.earlier[-1].reason if self.earlier else ""
        return RunStarted(attempt=self.number, after=after, lane=self.lane)

    def progress_event(self) -> RunProgressed:
        """What the sweep receives while nothing else happens."""
        return RunProgressed(seconds_ago=now() - self.progressed)

    @property
    def pending(self) -> list[str]:
        """Ranks that have not returned yet."""
        return [name for name in self.ranks if self.is_waiting_for(name)]

    @property
    def is_over(self) -> bool:
        """Whether every rank has returned or is lost."""
        return not self.pending

    def is_waiting_for(self, name: str) -> bool:
        """Whether the rank takes part and has not returned yet."""
        return name in self.ranks and name not in self.results and name not in self.lost

    @property
    def missed(self) -> str:
        """What returned ranks report about a peer that is gone, if no rank is known to be lost."""
        reasons = [result.reason for result in self.results.values() if result.is_symptom]
        return f"it waited for one that had ended with {reasons[0]}" if reasons and not self.lost else ""

    def take(self, name: str, result: RankResult) -> None:
        """Store the result of a rank; the first of several counts."""
        self.results.setdefault(name, result)
        if result.is_symptom:
            self.missed_at = min(self.missed_at, now())

    def lose(self, name: str, reason: str = "", *, not_at_fault: bool = False, was_waiting: bool = False) -> None:
        """Note that a rank will not return."""
        self.lost[name] = reason
        self.lost_at = min(self.lost_at, now())
        if not_at_fault:
            self.not_at_fault.add(name)
        if was_waiting:
            self.ended.add(name)

    @property
    def is_disconnected(self) -> bool:
        """Whether its ranks lost each other for no other known reason: the network failed."""
        return self.cause is None and not self.overdue and any(result.is_disconnected for result in self._failed)

    @property
    def cause(self) -> RankResult | None:
        """The first failure that is not a symptom of another rank's."""
        return next((result for result in self._failed if not result.is_symptom), None)

    @property
    def _failed(self) -> Iterable[RankResult]:
        return (result for result in self.results.values() if result.outcome != Outcome.OK)

    def overdue_reason(self, limits: RunLimits) -> str:
        """Why the attempt is to be ended early; empty if it may continue."""
        if limits.run_timeout is not None and now() - self.started > limits.run_timeout:
            return f"not done after {limits.run_timeout:g} s (run_timeout)"
        # A rank that waits for the decision after an epoch which was not reported waits for the rank that reports.
        is_deciding = self.job.prunable and self.reported > self.decided
        if limits.stall_timeout is not None and now() - self.progressed > limits.stall_timeout and not is_deciding:
            return f"no progress for {limits.stall_timeout:g} s (stall_timeout)"
        return ""

    def verdict(self) -> Verdict:
        """The outcome of the attempt, once every rank has returned or is lost."""
        if self.cause is not None:
            return _verdict_of(self.cause)
        if self.overdue:
            ended = self._first_ended
            had_ended = f"; rank {ended.rank} had ended after {ended.steps} steps" if ended else ""
            return Verdict(outcome=Outcome.TIMEOUT, reason=self.overdue + had_ended)
        if self.lost:
            count = f"{len(self.lost) - len(self.ended)} of {len(self.ranks)} ranks died"
            if self.oom_kill:
                return Verdict(outcome=Outcome.OOM, reason=f"{count}: {self.oom_kill}")
            reason = next((reason for reason in self.lost.values() if reason), "")
            return Verdict(outcome=Outcome.KILLED, reason=f"{count}: {reason}" if reason else count)

        # Only symptoms: every rank reports that another is gone.
        symptom = next(iter(self._failed), None)
        if symptom is None and (reason := self._without_steps):
            return Verdict(outcome=Outcome.ERROR, reason=reason)
        if symptom is None or self._served_others:
            return Verdict(outcome=Outcome.OK)
        verdict = _verdict_of(symptom)
        if uneven := self._uneven:
            verdict = replace(verdict, outcome=Outcome.ERROR, reason=uneven)
        elif self.is_disconnected:
            reason = f"the ranks lost each other: {verdict.reason}"
            verdict = replace(verdict, outcome=Outcome.KILLED, reason=reason)
        return verdict

    @property
    def _without_steps(self) -> str:
        """Why the run has no result, if no rank trained; empty if one did, for which others may have worked."""
        reasons = [result.run.without_steps for result in self.results.values()]
        return reasons[0] if reasons and all(reasons) else ""

    @property
    def _served_others(self) -> bool:
        """Whether all ranks that failed made no steps, and lost those that do since these were told to end."""
        were_ended = any(result.run.was_ended for result in self.results.values())
        return were_ended and all(result.is_symptom and result.run.without_steps for result in self._failed)

    @property
    def _first_ended(self) -> RankResult | None:
        """Of the ranks whose function has ended without an error, the one after the fewest steps."""
        ended = (result for result in self.results.values() if result.outcome is Outcome.OK)
        return min(ended, key=lambda result: (result.steps, result.rank), default=None)

    @property
    def _uneven(self) -> str:
        """Which rank ended before a collective that others waited in; empty if none did."""
        ended = self._first_ended
        if ended is None:
            return ""
        waiting = []
        for result in self._failed:
            # Where the network fails, both have begun the same collectives.
            is_later = result.steps >= ended.steps
            if result.collectives is not None and ended.collectives is not None:
                is_later = result.collectives > ended.collectives
            if is_later:
                waiting.append(result.rank)
        if not waiting:
            return ""
        names = ", ".join(str(rank) for rank in sorted(waiting))
        if ended.run.was_ended:
            return (
                f"rank {ended.rank} was ended after {ended.steps} steps, and rank {names} waited in a collective of "
                "another step; let the script run to its end: --steps none"
            )
        return (
            f"rank {ended.rank} ended after {ended.steps} steps while rank {names} waited "
            "in a later collective; give every rank as many batches (DistributedSampler, drop_last) and let it take "
            "part in each collective, or use Join"
        )


def _verdict_of(result: RankResult) -> Verdict:
    return Verdict(outcome=result.outcome, reason=result.reason, traceback=result.traceback)
