"""How a run ended, and what follows from it: a new outcome is decided on in each method of `Outcome`."""

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

    def is_retried(self) -> bool:
        """Whether a run that lost its ranks is tried again: no answer, and it need not occur again."""
        return self in (Outcome.KILLED, Outcome.TIMEOUT)

    def gives_up_trial(self) -> bool:
        """Whether it counts as a failure, after some of which further repeats of a trial are given up.

        Divergence does not: it may depend on the seed.
        """
        return self in (Outcome.KILLED, Outcome.TIMEOUT, Outcome.ERROR, Outcome.OOM)

    def is_cut_short(self) -> bool:
        """Whether the training might have reached a target later, had it gone on."""
        return self in (Outcome.KILLED, Outcome.TIMEOUT, Outcome.ERROR)

    def shows_training(self) -> bool:
        """Whether the run says how many steps a training needs."""
        return self not in (Outcome.SKIPPED, Outcome.KILLED, Outcome.ERROR)


def outcome_counts(endings: Iterable[str]) -> str:
    """`22 ok, 2 oom`, the most frequent first; empty without a run."""
    return ", ".join(f"{count:,} {ending}" for ending, count in Counter(endings).most_common())
