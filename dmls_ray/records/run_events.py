"""Messages about a run: the events on its way, how it ended, and what each of its ranks returned.

Ranks send `EpochEnded` and `Progress`; the scheduler adds the others. The last event of a run is `RunFinished` or
`RunAborted`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.records.model import EpochRecord, RankRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import part_of, plain_values, run_of

WITHOUT_STEPS = "without_steps"
"""Key of `RankResult.run`: why a rank has made no step, where others may have trained."""


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """What one rank of a run returned, or why it returned nothing."""

    rank: int
    """Number of the rank, from 0 to world_size - 1."""
    outcome: Outcome = Outcome.OK
    reason: str = ""
    """Why the outcome is not ok, in one line."""
    traceback: str = ""
    machine: str = ""
    device: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Measured by this rank: fields of `RankRecord`, and its metrics by name."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """Equal on all ranks: fields of `RunValues`, metrics and facts by name, and the `epochs` over all ranks."""
    steps: int = 0
    """Optimizer steps of the rank, above world size 1; unlike those of a record, also of a rank that failed."""
    collectives: int | None = None
    """Collectives that the rank had begun; None where its backend does not count them, or has no group any more."""
    is_symptom: bool = False
    """The rank failed only because another rank is gone."""
    is_disconnected: bool = False
    """The rank failed because the network between ranks did."""
    device_lost: bool = False
    """The process of the rank cannot use its GPU any more."""

    @classmethod
    def of(cls, returned: Any, what: str = "what the rank returned", **facts: Any) -> RankResult:
        """The result of an entry point, which returns a dict: `rank`, `outcome`, `reason`, `is_symptom`, `machine`,
        `device` and `run` are fields of this class, all other keys are `values`.

        Args:
            returned: that dict.
            what: says in a message whose values these are.
            facts: values where the dict has none.

        Raises:
            ValueError: a record cannot hold a value; with its name.
        """
        values = facts | plain_values(returned, what)
        outcome = Outcome(values.pop("outcome", Outcome.OK))
        reason, run = values.pop("reason", ""), values.pop("run", {})
        is_symptom = values.pop("is_symptom", False)
        # What these cannot read, no record could hold.
        part_of({"rank": 0, **values}, RankRecord, what)
        run_of(run, what)
        named = {name: values.pop(name) for name in ("rank", "machine", "device") if name in values}
        return cls(**named, outcome=outcome, reason=reason, is_symptom=is_symptom, run=run, values=values)


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


@dataclass(frozen=True, kw_only=True)
class EpochEnded:
    """A run has finished an epoch."""

    epoch: EpochRecord


@dataclass(frozen=True)
class Progress:
    """A rank is alive and getting on."""


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


@dataclass(frozen=True, kw_only=True)
class RunAborted:
    """The worker group cannot serve this run or any other."""

    reason: str
    is_lost: bool = False
    """A process of the sweep died: another start of the sweep is likely to succeed."""


RankEvent = EpochEnded | Progress
"""What a rank emits."""

RunEvent = RunStarted | EpochEnded | RunFinished | RunAborted
"""What the scheduler reports about a run."""


def is_last(event: RunEvent) -> bool:
    """Whether no further event of the run follows."""
    return isinstance(event, RunFinished | RunAborted)
