"""`Trainer`: what is expected of a trainer, and the clock that runs while ranks of it are missing."""

from __future__ import annotations

from dataclasses import dataclass, field

from dmls_ray.cluster.messages import ExpectedTrainer, RankRegistration
from dmls_ray.cluster.scheduler.clock import now

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
            self.missing_since, self.has_served, self.failed_starts = None, True, 0
            self.lost.clear()

    def lost_one(self, registration: RankRegistration) -> None:
        """Count a rank that is lost."""
        self.present -= 1
        self.lost.add(registration.index)
        if self.present < self.expected.ranks and self.missing_since is None:
            self.missing_since = now()

    def failed(self) -> bool:
        """Count a start without all ranks; returns whether the trainer is to be given up."""
        self.failed_starts += 1
        self.missing_since = now()
        return self.failed_starts >= MAX_FAILED_STARTS

    @property
    def where(self) -> str:
        """Its place in a message."""
        return f" on {self.expected.machine}" if self.expected.machine else ""
