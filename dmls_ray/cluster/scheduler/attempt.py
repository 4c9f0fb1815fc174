"""One attempt at a run: who takes part, what became of them, and what that makes of the run."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dmls_ray.cluster.messages import Job, Limits
from dmls_ray.records.outcome import Outcome

RETRIED = (Outcome.KILLED, Outcome.TIMEOUT)
"""What says nothing about the run's question; all else is an answer, or would end the same way again."""

FAILURES = (Outcome.KILLED, Outcome.TIMEOUT, Outcome.ERROR, Outcome.OOM)
"""What a trial's further repeats are given up for; whether a loss stays finite may depend on the seed."""

_UNCHARGED = 5
"""How often a run is let off for deaths that it has no part in."""


def out_of_memory(before: int | None, now: int | None, machine: str) -> str:
    """What it means that the kernel's count of processes ended for want of memory has grown; empty where it has not."""
    if before is None or now is None or now <= before:
        return ""
    return f"out of memory, the kernel ended {now - before} process{'es' if now - before > 1 else ''} on {machine}"


@dataclass
class Attempt:
    """One attempt at a run."""

    job: Job
    lease_id: str
    ranks: list[str]
    earlier: list[dict[str, Any]]
    """What became of the attempts before."""
    charged: int = 0
    """How many of them count against max_retries."""
    machines: list[dict[str, Any]] = field(default_factory=list)
    """What the machines of its ranks are, the first rank's first."""
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By rank, in the order of arrival: the first that is not ok is the cause."""
    lost: dict[str, str] = field(default_factory=dict)
    """Ranks that will not return, and what is known of it."""
    lost_at: float = math.inf
    """When the first of them was lost, by time.monotonic."""
    missed_at: float = math.inf
    """When the first of its ranks said that another is gone."""
    blameless: set[str] = field(default_factory=set)
    """Those of them whose end is not the run's doing: replaced with another rank of their trainer that died, gone with
    their machine, or ended because they waited for such a one."""
    lost_addresses: set[str] = field(default_factory=set)
    """Of the machines that they were on."""
    interrupted: bool = False
    """Its other ranks were told to wait no more for those that were lost."""
    begun: dict[str, int | None] = field(default_factory=dict)
    """Ranks that have begun, and how many processes the kernel had ended there for want of memory."""
    memory: str = ""
    """Evidence that a rank was ended for want of memory."""
    overdue: str = ""
    """Why it was cut short."""
    started: float = field(default_factory=time.monotonic)
    progressed: float = field(default_factory=time.monotonic)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    asked: dict[str, int] = field(default_factory=dict)
    """By rank: after how many epochs it has asked whether to go on."""
    decided: int = 0
    """For how many epochs it was decided that the run goes on."""
    stopped: bool = False
    """It was decided that it does not."""
    decision: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and made anew, at each decision."""

    async def may_go_on(self, name: str, number: int) -> bool:
        """Wait for what is decided of the epoch, by its number from 1, that a rank has ended."""
        self.asked[name] = number
        while not self.stopped and self.decided < self.asked[name]:
            await self.decision.wait()
        self.progressed = time.monotonic()
        # What was decided before this epoch holds on every rank; a stop that comes between two of them holds for both.
        return self.decided >= self.asked[name]

    def decide(self, *, epochs: int | None) -> None:
        """The run goes on after so many epochs; None: it stops."""
        self.stopped = epochs is None
        self.decided = max(self.decided, epochs or 0)
        self.decision.set()
        self.decision = asyncio.Event()

    @property
    def number(self) -> int:
        """From 1."""
        return len(self.earlier) + 1

    @property
    def waits_for(self) -> list[str]:
        """Ranks that are to return yet."""
        return [name for name in self.ranks if self.is_waiting_for(name)]

    @property
    def is_over(self) -> bool:
        """Whether every rank has returned or is lost; by counting, since it is asked each time that one returns."""
        return len(self.results) + len(self.lost) == len(self._members)

    def is_waiting_for(self, name: str) -> bool:
        """Whether the rank takes part, and is to return yet."""
        return name in self._members and name not in self.results and name not in self.lost

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self.ranks)

    @property
    def missed(self) -> str:
        """What the ranks that are back say of others that are gone, where none is known to be."""
        said = [str(item.get("reason", "")) for item in self.results.values() if item.get("symptom")]
        return f"it waited for one that had ended with {said[0]}" if said and not self.lost else ""

    def take(self, name: str, result: dict[str, Any]) -> None:
        """A rank has returned; of its results the first counts."""
        self.results.setdefault(name, result)
        if result.get("symptom"):
            self.missed_at = min(self.missed_at, time.monotonic())

    def lose(self, name: str, reason: str = "", *, blameless: bool = False) -> None:
        """A rank will not return."""
        self.lost[name] = reason
        self.lost_at = min(self.lost_at, time.monotonic())
        if blameless:
            self.blameless.add(name)

    @property
    def is_disconnected(self) -> bool:
        """Whether its ranks lost each other and nothing else is known to have happened: the network failed."""
        failed = [item for item in self.results.values() if item["outcome"] != Outcome.OK]
        return self.cause is None and not self.overdue and any(item.get("disconnected") for item in failed)

    @property
    def cause(self) -> dict[str, Any] | None:
        """The first failure of a rank's own, not that another rank was gone."""
        failed = (item for item in self.results.values() if item["outcome"] != Outcome.OK)
        return next((item for item in failed if not item.get("symptom")), None)

    def is_overdue(self, limits: Limits) -> str:
        """Why the attempt is to be cut short; empty where it may go on."""
        now = time.monotonic()
        if limits.run_timeout is not None and now - self.started > limits.run_timeout:
            return f"not done after {limits.run_timeout:g} s (run_timeout)"
        waits = any(count > self.decided for count in self.asked.values())
        if limits.stall_timeout is not None and now - self.progressed > limits.stall_timeout and not waits:
            return f"no progress for {limits.stall_timeout:g} s (stall_timeout)"
        return ""

    def verdict(self) -> dict[str, Any]:
        """`outcome`, `reason` and `traceback` of the attempt, once no rank is waited for."""
        cause = self.cause
        if cause is None and self.overdue:
            cause = {"outcome": Outcome.TIMEOUT.value, "reason": self.overdue}
        if cause is None and self.lost:
            count = f"{len(self.lost)} of {len(self.ranks)} ranks died"
            if self.memory:
                cause = {"outcome": Outcome.OOM.value, "reason": f"{count}: {self.memory}"}
            else:
                why = next(filter(None, self.lost.values()), "")
                cause = {"outcome": Outcome.KILLED.value, "reason": f"{count}: {why}" if why else count}
        if cause is None:
            # Only symptoms: every rank says that another is gone.
            failed = (item for item in self.results.values() if item["outcome"] != Outcome.OK)
            cause = next(failed, {"outcome": Outcome.OK.value})
            if self.is_disconnected:
                cause = {**cause, "outcome": Outcome.KILLED.value,
                         "reason": f"the ranks lost each other: {cause['reason']}"}  # fmt: skip
        return {
            "outcome": cause["outcome"],
            "reason": cause.get("reason", ""),
            "traceback": cause.get("traceback", ""),
        }

    def again(self, verdict: dict[str, Any], limits: Limits) -> Queued | None:
        """The run as it is to be queued anew; None where this attempt is its end."""
        if verdict["outcome"] not in RETRIED:
            return None
        # A rank that died while it was idle was leased to before anybody knew, and some ends are not the run's doing.
        innocent = bool(self.lost) and (not self.begun or self.blameless >= self.lost.keys())
        innocent = innocent and len(self.earlier) - self.charged < _UNCHARGED
        charged = self.charged if innocent else self.charged + 1
        if charged > limits.max_retries:
            return None
        told = {
            "attempt": self.number,
            "outcome": verdict["outcome"],
            "reason": verdict["reason"],
            "seconds": round(time.monotonic() - self.started, 3),
        }
        return Queued(self.job, [*self.earlier, told], charged)


@dataclass
class Queued:
    """A run that waits for ranks."""

    job: Job
    earlier: list[dict[str, Any]] = field(default_factory=list)
    charged: int = 0


class Failures:
    """Counts equal failures of a trial in a row."""

    def __init__(self, give_up_after: int | None) -> None:
        self._most = give_up_after
        self._counts: dict[str, tuple[str, int]] = {}

    def note(self, trial_id: str, verdict: dict[str, Any]) -> None:
        """A run of the trial has ended."""
        if verdict["outcome"] not in FAILURES:
            self._counts.pop(trial_id, None)
            return
        # Messages of one failure differ in their numbers; the exception's name does not.
        sign = f"{verdict['outcome']}: {verdict['reason'].partition(':')[0]}"
        before, count = self._counts.get(trial_id, ("", 0))
        self._counts[trial_id] = (sign, count + 1 if sign == before else 1)

    def give_up(self, trial_id: str) -> str:
        """Why the trial is given up; empty where it is not."""
        sign, count = self._counts.get(trial_id, ("", 0))
        if self._most is None or count < self._most:
            return ""
        return f"given up after {count} equal failures ({sign})"
