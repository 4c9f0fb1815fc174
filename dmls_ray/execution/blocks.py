"""`Blocks`: which runs of a plan come next: all that are missing, or more blocks until the comparisons are decided."""

from __future__ import annotations

from collections.abc import Callable, Collection

from dmls_ray.analysis.findings.decide import Decision
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.words import end_text, progress_text
from dmls_ray.config.grid import Plan, Run
from dmls_ray.config.until import Until


class Blocks:
    """Hands out the runs of a plan.

    Args:
        plan: the runs, with as many blocks as there may be.
        finished: run_id of each run that need not be run.
        again: run_id of each run that has ended without an answer, and is run again.
        decide: says what the comparisons of the results so far are; None where the plan has the number of blocks that
            was asked for.
    """

    def __init__(
        self, plan: Plan, finished: Collection[str], again: Collection[str], decide: Callable[[], Decision] | None
    ) -> None:
        self._plan, self._decide = plan, decide
        self._handed_out = set(finished)
        self._again = frozenset(again)
        self.candidates = plan.pending(finished)
        """All runs that may be handed out."""
        self.reason = ""
        """Why the last runs were handed out, or why there were none; empty for the first."""

    def next(self) -> tuple[Run, ...]:
        """The next runs, when all that were handed out have ended; empty if those were all."""
        left = self._plan.pending(self._handed_out)
        if self._decide is None:
            return self._hand_out(left)
        first = tuple(run for run in left if run.repeat < FIRST_LOOK or run.run_id in self._again)
        if first:
            return self._hand_out(first)
        decision = self._decide()
        stage = decision.stage
        if stage is None or not decision.goes_on:
            self.reason = end_text(decision)
            return ()
        self.reason = progress_text(decision)
        more = (run for run in left if run.repeat < stage.next_blocks and run.trial_id in stage.trials)
        return self._hand_out(tuple(more))

    def _hand_out(self, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        self._handed_out |= {run.run_id for run in runs}
        return runs


def blocks_of(
    plan: Plan, until: Until | None, axis: str | None, finished: Collection[str], results: Callable[[], Results]
) -> Blocks:
    """The blocks of a plan.

    Args:
        plan: the runs, with as many blocks as there may be.
        until: until when trials are repeated; None where their number was given.
        axis: the field that the sweep asks about; None for the first that varies.
        finished: run_id of each run that need not be run.
        results: returns the results of the plan so far.
    """
    if until is None:
        return Blocks(plan, finished, (), None)
    question = SweepQuestion(varied=plan.varied, axis=axis, changed=plan.changed)
    again = {record.run_id for record in results().records} - set(finished)
    return Blocks(plan, finished, again, lambda: SweepSummary(results(), question).decision)
