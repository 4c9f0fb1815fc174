"""`Membership`: which ranks there are, which of them are idle, and which trainers are still to come."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from dmls_ray.cluster.messages import ExpectedTrainer, Lease, Leave, Observe, RankRegistration
from dmls_ray.cluster.scheduler.attempt import Attempt
from dmls_ray.cluster.scheduler.clock import now
from dmls_ray.cluster.scheduler.trainers import Trainer

IDLE_REPORT_TIMEOUT_S = 10.0
"""How long a rank that has joined, or whose run has ended, may take to ask for work before runs start without it."""


@dataclass
class Rank:
    """A rank that has joined."""

    registration: RankRegistration
    waiting: asyncio.Future[Lease | Leave | None] | None = None
    """Set while the rank asks for a lease, that is, while it is idle."""
    attempt: Attempt | None = None
    lease: Lease | None = None
    """The last lease it was given."""
    interruption: asyncio.Future[tuple[str, ...] | Observe] | None = None
    """Set while the rank asks whether its run is broken."""
    must_leave: bool = False
    """It is to end its process when it asks for work."""
    free_since: float = field(default_factory=now)
    """When it joined, or its last run ended."""

    def answer(self, reply: Lease | Leave | None) -> None:
        """Answer its request for work, if there is one, and its process has not ended."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(reply)

    @property
    def can_be_interrupted(self) -> bool:
        """Whether it asks whether its run is broken."""
        return self.interruption is not None and not self.interruption.done()

    def interrupt(self, reply: tuple[str, ...] | Observe) -> None:
        """Answer its question whether its run is broken, if there is one."""
        if self.interruption is not None and not self.interruption.done():
            self.interruption.set_result(reply)


class Membership:
    """Ranks by name, and what is expected of their trainers.

    Args:
        expected: trainers that are announced already, by name.
    """

    def __init__(self, expected: Mapping[str, ExpectedTrainer]) -> None:
        self.ranks: dict[str, Rank] = {}
        self.trainers = {name: Trainer(item) for name, item in expected.items()}
        """Trainers that are announced and not over."""
        self.ended: set[str] = set()
        """Trainers that are over."""
        self.refusals: dict[str, str] = {}
        """Trainers whose ranks cannot serve, and why."""
        self.broken_groups: set[tuple[str, str]] = set()
        """Trainers' groups in which a rank has died: Train replaces the other ranks with it."""
        self.departed: dict[str, None] = {}
        """Machines that have left, and are not back."""
        self.changed = now()
        """When ranks were last lost for good, or announced."""
        self.slots: Counter[str] = Counter()
        """Ranks of each machine."""
        self._idle: dict[str, set[str]] = {}
        """Idle ranks by machine, in the order in which runs take machines."""
        self._machine_order: dict[str, int] = {}

    def add(self, name: str, registration: RankRegistration) -> None:
        """Add a rank, unless its trainer is over."""
        machine = registration.machine
        if registration.trainer in self.ended:
            return
        self.ranks[name] = Rank(registration)
        self.slots[machine] += 1
        self.departed.pop(machine, None)
        if trainer := self.trainers.get(registration.trainer):
            trainer.joined(registration)

        if self._machine_order.get(machine) != registration.machine_order:
            self._machine_order[machine] = registration.machine_order
            in_order = sorted(self._machine_order, key=self._machine_order.__getitem__)
            self._idle = {name: self._idle.get(name, set()) for name in in_order}

    def remove(self, name: str) -> Rank:
        """Remove a rank, and answer what it waits for."""
        rank = self.ranks.pop(name)
        self.slots[rank.registration.machine] -= 1
        if trainer := self.trainers.get(rank.registration.trainer):
            trainer.lost_one(rank.registration)
        self.set_busy(name, rank)
        rank.answer(None)
        rank.interrupt(())
        return rank

    def expect(self, name: str, expected: ExpectedTrainer) -> None:
        """Announce a trainer, unless it is over or announced already."""
        if name not in self.ended and name not in self.trainers:
            self.trainers[name] = Trainer(expected)
            self.changed = now()

    def end_trainer(self, name: str) -> Trainer | None:
        """Expect no more ranks of a trainer; returns it, if it was announced."""
        self.ended.add(name)
        self.changed = now()
        return self.trainers.pop(name, None)

    def of_trainer(self, trainer: str) -> dict[str, Rank]:
        """The ranks of a trainer, by name."""
        return {name: rank for name, rank in self.ranks.items() if rank.registration.trainer == trainer}

    def set_idle(self, name: str) -> None:
        """Offer a rank to runs."""
        self._idle[self.ranks[name].registration.machine].add(name)

    def set_busy(self, name: str, rank: Rank) -> None:
        """Offer a rank to no run."""
        self._idle[rank.registration.machine].discard(name)

    @property
    def idle_slots(self) -> dict[str, int]:
        """Idle ranks of each machine, in the order in which runs take machines."""
        return {machine: len(names) for machine, names in self._idle.items()}

    @property
    def all_slots(self) -> dict[str, int]:
        """Likewise, all ranks."""
        return {machine: self.slots[machine] for machine in self._idle}

    def take_idle(self, chosen: Mapping[str, int]) -> list[str]:
        """Take this many idle ranks of each machine, those with the lowest numbers."""
        taken: list[str] = []
        for machine, count in chosen.items():
            by_number = sorted(self._idle[machine], key=lambda name: (self.ranks[name].registration.index, name))
            taken += by_number[:count]
            self._idle[machine] -= set(by_number[:count])
        return taken

    @property
    def is_complete(self) -> bool:
        """Whether all ranks that runs wait for have joined."""
        return all(trainer.missing_since is None or trainer.is_arriving for trainer in self.trainers.values())

    @property
    def has_rank_not_yet_idle(self) -> bool:
        """Whether a rank has joined, or finished its run, and has not asked for work yet.

        Dispatching now would place the run on whichever rank reported idle first, so identical runs could land on
        different machines and overlap with that rank's teardown. A rank that hangs is waited for once, not before
        every run.
        """
        since = now() - IDLE_REPORT_TIMEOUT_S
        return any(rank.waiting is None and rank.free_since > since for rank in self.ranks.values())

    def wait_until(self, wait_for_ranks: float) -> float:
        """Until when a run without ranks waits for more of them."""
        arrivals = [
            trainer.missing_since + trainer.timeout(wait_for_ranks)
            for trainer in self.trainers.values()
            if trainer.missing_since is not None and trainer.is_arriving
        ]
        return max([self.changed + wait_for_ranks, *arrivals])
