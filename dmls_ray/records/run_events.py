"""Messages about a run: the events on its way, how it ended, and what each of its ranks returned.

Ranks send `EpochEnded` and `Progress`; the scheduler adds the others. The last event of a run is `RunFinished` or
`RunAborted`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from dmls_ray.records.model import FIRST_LANE, EpochRecord, Int, RankRecord, RunValues
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import checked_epoch, is_number, part_of, plain_values


class RunResult(RunValues, kw_only=True, omit_defaults=True):
    """What a rank returned of the run as a whole: equal on all ranks that trained."""

    epochs: list[EpochRecord] = msgspec.field(default_factory=list)
    """The epochs, over all ranks."""
    reported: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values that the user's code reported, by name; unlike `metrics`, without a `Metric` of each number."""
    said: dict[str, float] = msgspec.field(default_factory=dict)
    """Samples and tokens of a step of all ranks, as the user says them."""
    without_steps: str = ""
    """Why the rank has made no step, where others may have trained."""

    def add(self, values: Mapping[str, Any]) -> None:
        """Add values by name: numbers as metrics, other values as facts; what is None is left out."""
        for name, value in values.items():
            if is_number(value):
                self.metrics[name] = value
            elif value is not None:
                self.facts[name] = value


class RankResult(RankRecord, kw_only=True, omit_defaults=True):
    """What an entry point returns: what one rank of a run measured, or why it measured nothing."""

    rank: Int = 0
    """Number of the rank, from 0 to world_size - 1. This number, `machine`, `device` and `pid` are filled in."""
    outcome: Outcome = Outcome.OK
    reason: str = ""
    """Why the outcome is not ok, in one line."""
    traceback: str = ""
    run: RunResult = msgspec.field(default_factory=RunResult)
    step_losses: list[float | None] = msgspec.field(default_factory=list)
    """Loss of each of its first optimizer steps, as a mean over backward passes; None where it is not known."""
    step_passes: list[Int] = msgspec.field(default_factory=list)
    """Backward passes of each of these steps."""
    steps: Int = 0
    """Optimizer steps of the rank, above world size 1; unlike those of a record, also of a rank that failed."""
    collectives: Int | None = None
    """Collectives that the rank had begun; None where its backend does not count them, or has no group any more."""
    is_symptom: bool = False
    """The rank failed only because another rank is gone."""
    is_disconnected: bool = False
    """The rank failed because the network between ranks did."""
    device_lost: bool = False
    """The process of the rank cannot use its GPU any more."""

    def add(self, metrics: Mapping[str, float | None]) -> None:
        """Add metrics of this rank by name; what is None is left out."""
        self.metrics |= {name: value for name, value in metrics.items() if value is not None}

    def checked(self, what: str) -> RankResult:
        """The result with plain values, which a record can hold, and without numbers that are not finite.

        Args:
            what: says in a message whose values these are.

        Raises:
            ValueError: a value has the wrong type; with its name.
        """
        run = replace(
            self.run,
            metrics=_finite(self.run.metrics, what),
            facts=plain_values(self.run.facts, what),
            reported=plain_values(self.run.reported, what),
            epochs=[checked_epoch(epoch, what) for epoch in self.run.epochs],
        )
        part_of(run.reported, RunValues, what)
        epochs = [checked_epoch(epoch, what) for epoch in self.epochs]
        result = replace(self, metrics=_finite(self.metrics, what), epochs=epochs, run=run)
        try:
            return msgspec.convert(msgspec.to_builtins(result), RankResult)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what} does not fit a record ({error}).") from error


def _finite(values: Mapping[str, Any], what: str) -> dict[str, float]:
    """The finite ones of these numbers.

    Raises:
        ValueError: a value is no number.
    """
    numbers = {name: value for name, value in plain_values(values, what).items() if value is not None}
    for name, value in numbers.items():
        if not is_number(value):
            raise ValueError(f"{name} in {what} is of type {type(value).__name__}; give a number.")
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


class SkipKind(enum.Enum):
    """Why a run was not started."""

    INFEASIBLE = "infeasible"
    """The plan or the machines do not allow it."""
    NO_RANKS = "no_ranks"
    """Its ranks are gone, and were not replaced within wait_for_ranks."""
    GIVEN_UP = "given_up"
    """Earlier runs of its trial failed in the same way."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a run, or one attempt at it, ended."""

    outcome: Outcome
    reason: str = ""
    """Why the outcome is not ok, in one line."""
    traceback: str = ""
    skip: SkipKind | None = None
    """Of a skipped run: why it was not started."""


@dataclass(frozen=True, kw_only=True)
class EarlierAttempt:
    """An attempt at a run that was followed by another; a record stores it as a dict."""

    attempt: int
    """From 1."""
    outcome: str
    reason: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    """An attempt at a run has its ranks."""

    attempt: int
    """From 1."""
    after: str = ""
    """Why the attempt before it ended; empty for the first."""
    lane: int = FIRST_LANE
    """Number of the lane of its ranks."""


@dataclass(frozen=True, kw_only=True)
class EpochEnded:
    """A run has finished an epoch."""

    epoch: EpochRecord


@dataclass(frozen=True)
class Progress:
    """A rank is alive and getting on."""


@dataclass(frozen=True, kw_only=True)
class RunProgressed:
    """Nothing else has happened for a while, and ranks have made progress meanwhile, or have not."""

    seconds_ago: float
    """Since the last sign of progress of a rank."""


@dataclass(frozen=True, kw_only=True)
class RunFinished:
    """A run has its outcome."""

    verdict: Verdict
    attempts: int = 0
    """How often the run was started; 0 if it was skipped."""
    earlier: tuple[EarlierAttempt, ...] = ()
    """The attempts before the last."""
    results: tuple[RankResult, ...] = ()
    """Of the ranks that returned, in their order."""
    machines: tuple[dict[str, Any], ...] = ()
    """Description of each machine of the run, the first rank's first."""
    lane: int = 0
    """Number of the lane of its ranks; 0 if the run was not started."""


@dataclass(frozen=True, kw_only=True)
class RunAborted:
    """The worker group cannot serve this run or any other."""

    reason: str
    is_lost: bool = False
    """A process of the sweep died: another start of the sweep is likely to succeed."""


RankEvent = EpochEnded | Progress
"""What a rank emits."""

RunEvent = RunStarted | EpochEnded | RunProgressed | RunFinished | RunAborted
"""What the scheduler reports about a run."""


def is_last(event: RunEvent) -> bool:
    """Whether no further event of the run follows."""
    return isinstance(event, RunFinished | RunAborted)
