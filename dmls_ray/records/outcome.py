"""How a run ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum


class Outcome(StrEnum):
    """How a run ended; every run ends in exactly one."""

    OK = "ok"
    OOM = "oom"
    """Device or host memory did not suffice."""
    DIVERGED = "diverged"
    """A loss was not finite."""
    TIMEOUT = "timeout"
    KILLED = "killed"
    """A rank's process died."""
    ERROR = "error"
    """An exception; `traceback` has it."""
    SKIPPED = "skipped"
    """Not feasible here; `reason` says why."""

    def is_final(self) -> bool:
        """Whether the same command need not run it again: the cause of a failure may have been removed since."""
        return self in (Outcome.OK, Outcome.OOM, Outcome.DIVERGED)

    def is_answer(self) -> bool:
        """Whether the outcome answers the question that the run asked."""
        return self in (Outcome.OK, Outcome.OOM, Outcome.DIVERGED, Outcome.SKIPPED)


def outcome_counts(endings: Iterable[str]) -> str:
    """`22 ok, 2 oom`, the most frequent first; empty without a run."""
    return ", ".join(f"{count:,} {ending}" for ending, count in Counter(endings).most_common())
