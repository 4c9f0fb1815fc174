"""`Membership`: which ranks there are, which trainers are still to come, and the lanes that they make."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from dmls_ray.cluster.messages import ExpectedTrainer, Lease, Leave, RankRegistration
from dmls_ray.cluster.scheduler.attempt import Attempt, now
from dmls_ray.records.model import FIRST_LANE

IDLE_REPORT_TIMEOUT_S = 10.0
"""How long a rank that has joined, or whose run has ended, may take to ask for work before runs start without it."""


START_TIMEOUT_S = 600.0
"""How long the ranks of a new trainer may take: its machine may prepare data first, and the cluster may lack free
resources. With a longer wait_for_ranks, that long."""

RESTART_TIMEOUT_S = 120.0
"""How long the ranks of a trainer that has served may take to come back."""

MAX_FAILED_STARTS = 4
"""Starts in a row without all ranks of a trainer after which it is given up."""


@dataclass
class Trainer:
    """The ranks of one TorchTrainer."""

    expected: ExpectedTrainer
    present: int = 0
    """How many of its ranks have joined."""
    missing_since: float | None = field(default_factory=now)
    """When it lost a rank, was announced, or last failed to start; None while all of its ranks are there."""
    has_served: bool = False
    """All of its ranks have been there."""
    failed_starts: int = 0
    """In a row."""
    lost: set[int] = field(default_factory=set)
    """Numbers of lost ranks whose end Ray has not reported."""

    @property
    def is_arriving(self) -> bool:
        """Whether runs that find other ranks need not wait for its ranks."""
        return self.expected.is_optional and not self.has_served and self.missing_since is not None

    def timeout(self, wait_for_ranks: float) -> float:
        """How long its ranks may be missing."""
        return RESTART_TIMEOUT_S if self.has_served else max(START_TIMEOUT_S, wait_for_ranks)

    def joined(self, registration: RankRegistration) -> None:
        """Count a rank that has joined."""
        self.lost.discard(registration.index)
        self.present += 1
        if self.present >= self.expected.ranks:
            self.has_served = True
            self.missing_since, self.failed_starts = None, 0
            self.lost.clear()

    def failed(self) -> bool:
        """Count a start without all ranks; returns whether the trainer is to be given up."""
        self.failed_starts += 1
        self.missing_since = now()
        return self.failed_starts >= MAX_FAILED_STARTS

    @property
    def where(self) -> str:
        """Its place in a message."""
        return f" on {self.expected.machine}" if self.expected.machine else ""


@dataclass
class Rank:
    """A rank that has joined."""

    registration: RankRegistration
    waiting: asyncio.Future[Lease | Leave | None] | None = None
    """Set while the rank asks for a lease, that is, while it is idle."""
    attempt: Attempt | None = None
    lease: Lease | None = None
    """The last lease it was given."""
    free_since: float = field(default_factory=now)
    """When it joined, or its last run ended."""

    @property
    def is_idle(self) -> bool:
        """Whether it asks for work, and serves no run."""
        return self.attempt is None and self.waiting is not None and not self.waiting.done()

    def answer(self, reply: Lease | Leave | None) -> None:
        """Answer its request for work, if there is one, and its process has not ended."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(reply)


class Lane:
    """Ranks that can serve the widest run of a sweep, and their trainers."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ranks: dict[str, Rank] = {}
        """By name, in the order in which runs take them."""
        self.slots: Counter[str] = Counter()
        """Ranks of each machine."""
        self.trainers: dict[str, Trainer] = {}
        """Its trainers that are announced and not over."""
        self.width = 0
        """Ranks that the widest run needs."""
        self.under_way: set[str] = set()
        """lease_id of each of its attempts."""

    def add(self, name: str, rank: Rank) -> None:
        """Add a rank."""
        self.ranks[name] = rank
        self.ranks = dict(sorted(self.ranks.items(), key=_place))
        self.slots[rank.registration.machine] += 1

    def remove(self, name: str) -> None:
        """Remove a rank."""
        rank = self.ranks.pop(name)
        self.slots[rank.registration.machine] -= 1

    def expect(self, name: str, trainer: Trainer) -> None:
        """Count on the ranks of a trainer."""
        self.trainers[name] = trainer
        self.width = max(self.width, sum(item.expected.ranks for item in self.trainers.values()))

    @property
    def is_whole(self) -> bool:
        """Whether it has, or will have again, as many ranks as the widest run needs."""
        ranks = [trainer.expected.ranks for trainer in self.trainers.values() if not trainer.is_arriving]
        return sum(ranks) >= self.width

    @property
    def is_complete(self) -> bool:
        """Whether all ranks that runs wait for have joined."""
        return all(trainer.missing_since is None or trainer.is_arriving for trainer in self.trainers.values())

    @property
    def idle_slots(self) -> Counter[str]:
        """Idle ranks of each machine, in the order in which runs take machines."""
        return Counter(rank.registration.machine for rank in self.ranks.values() if rank.is_idle)

    def choose_idle(self, counts: Mapping[str, int]) -> list[str]:
        """This many idle ranks of each machine, those with the lowest numbers."""
        chosen: list[str] = []
        for machine, count in counts.items():
            ranks = self.ranks.items()
            idle = [name for name, rank in ranks if rank.is_idle and rank.registration.machine == machine]
            chosen += idle[:count]
        return chosen

    @property
    def has_rank_not_yet_idle(self) -> bool:
        """Whether a rank has joined, or finished its run, and has not asked for work yet.

        Dispatching now would place the run on whichever rank reported idle first, so identical runs could land on
        different machines and overlap with that rank's teardown. A rank that hangs is waited for once, not before
        every run.
        """
        since = now() - IDLE_REPORT_TIMEOUT_S
        return any(rank.waiting is None and rank.free_since > since for rank in self.ranks.values())


class Membership:
    """Ranks by name, what is expected of their trainers, and the lanes that they make.

    Args:
        expected: trainers that are announced already, by name.
    """

    def __init__(self, expected: Mapping[str, ExpectedTrainer]) -> None:
        self.ranks: dict[str, Rank] = {}
        """By name."""
        self.trainers: dict[str, Trainer] = {}
        """Trainers that are announced and not over."""
        self.lanes = {FIRST_LANE: Lane(FIRST_LANE)}
        """By number. The first is always there."""
        self._lane_of: dict[str, Lane] = {}
        """By trainer, of those that are over, too."""
        self.ended: set[str] = set()
        """Trainers that are over."""
        self.refusals: dict[str, str] = {}
        """Trainers whose ranks cannot serve, and why."""
        self.departed: dict[str, None] = {}
        """Machines that have left, and are not back."""
        self.changed = now()
        """When ranks were last lost for good, or announced."""
        for name, item in expected.items():
            self.expect(name, item)

    def lane_of(self, trainer: str) -> Lane:
        """The lane of a trainer; the first if it was never announced."""
        return self._lane_of.get(trainer, self.lanes[FIRST_LANE])

    def add(self, name: str, registration: RankRegistration) -> None:
        """Add a rank, unless its trainer is over."""
        if registration.trainer in self.ended:
            return
        self.ranks[name] = Rank(registration)
        self.lane_of(registration.trainer).add(name, self.ranks[name])
        self.departed.pop(registration.machine, None)
        if trainer := self.trainers.get(registration.trainer):
            trainer.joined(registration)

    def remove(self, name: str) -> Rank:
        """Remove a rank, and answer what it waits for."""
        rank = self.ranks.pop(name)
        self.lane_of(rank.registration.trainer).remove(name)
        if trainer := self.trainers.get(rank.registration.trainer):
            trainer.present -= 1
            trainer.lost.add(rank.registration.index)
            if trainer.present < trainer.expected.ranks and trainer.missing_since is None:
                trainer.missing_since = now()
        rank.answer(None)
        return rank

    def expect(self, name: str, expected: ExpectedTrainer) -> None:
        """Announce a trainer, unless it is over or announced already."""
        if name in self.ended or name in self.trainers:
            return
        self.trainers[name] = Trainer(expected)
        self._lane_of[name] = self.lanes.setdefault(expected.lane, Lane(expected.lane))
        self._lane_of[name].expect(name, self.trainers[name])
        self.changed = now()

    def end_trainer(self, name: str) -> None:
        """Expect no more ranks of a trainer."""
        self.ended.add(name)
        self.changed = now()
        self.trainers.pop(name, None)
        self.lane_of(name).trainers.pop(name, None)

    def of_trainer(self, trainer: str) -> dict[str, Rank]:
        """The ranks of a trainer, by name."""
        ranks = self.lane_of(trainer).ranks
        return {name: rank for name, rank in ranks.items() if rank.registration.trainer == trainer}

    def wait_until(self, wait_for_ranks: float) -> float:
        """Until when a run without ranks waits for more of them."""
        until = self.changed + wait_for_ranks
        for trainer in self.trainers.values():
            if trainer.missing_since is not None and trainer.is_arriving:
                until = max(until, trainer.missing_since + trainer.timeout(wait_for_ranks))
        return until


def _place(item: tuple[str, Rank]) -> tuple[int, str, int, str]:
    name, rank = item
    registration = rank.registration
    return registration.machine_order, registration.machine, registration.index, name
