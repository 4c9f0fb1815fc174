"""`FolderState`: what a results folder holds of a plan, which runs come next, and why these.

All that are missing come at once, or, with `--repeats auto`, more blocks until the comparisons are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.words import count_noun, end_text, progress_text
from dmls_ray.config.grid import Plan, Run
from dmls_ray.config.identity import join_identities
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import SearchSpace
from dmls_ray.execution.planning import finished_run_ids
from dmls_ray.records.model import RunRecord
from dmls_ray.records.stale import describe_stale


class FolderState:
    """A results folder compared with a plan; hands out the runs of the plan.

    Args:
        plan: the runs, with as many blocks as there may be.
        options: how they are run.
        records: all records of the folder.
        results: returns the results of the plan so far.
        space: what a searcher proposes from; the plan then has examples only.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        records: Sequence[RunRecord],
        results: Callable[[], Results],
        space: SearchSpace | None = None,
    ) -> None:
        self.plan, self.options, self.space = plan, options, space
        self.records, self._results = records, results
        self.finished = finished_run_ids(plan, records, options)
        """The run_id of each run that has an answer."""
        self.candidates = plan.pending(self.finished)
        """All runs that may be handed out."""
        self._handed_out = set(self.finished)
        self.reason = ""
        """Why the last runs were handed out, or why there were none; empty where runs are simply not there."""
        self.proposed: list[RunRecord] = []
        """The runs that a searcher proposed before."""
        self.answered: list[RunRecord] = []
        """Those of them with an answer; others take the place of failed ones."""
        self.left_to_propose = 0
        """How many runs a searcher is still to propose."""
        self.missing: tuple[Run, ...]
        """The runs that come first; of a searcher's the examples of the plan, if it is to propose more."""
        if space is None:
            self.missing = self.next()
        else:
            self.proposed = proposed_before(space, records)
            self.answered = [record for record in self.proposed if record.outcome.is_answer()]
            self.left_to_propose = space.at_most(options.samples) - len(self.answered)
            self.missing = plan.runs if self.left_to_propose > 0 else ()
            self.candidates = self.missing

    def next(self) -> tuple[Run, ...]:
        """The next runs, when all that were handed out have ended; empty if those were all."""
        runs = self.plan.pending(self._handed_out)
        if self.options.until is not None:
            runs = self._next_blocks(runs)
        self._handed_out |= {run.run_id for run in runs}
        return runs

    def _next_blocks(self, left: Sequence[Run]) -> tuple[Run, ...]:
        """Of the runs that are left: those that ended without an answer and the first blocks, then the next blocks."""
        again = {record.run_id for record in self.records}
        first = tuple(run for run in left if run.repeat < FIRST_LOOK or run.run_id in again)
        if first:
            return first
        question = SweepQuestion(varied=self.plan.varied, axis=self.options.axis, changed=self.plan.changed)
        decision = SweepSummary(self._results(), question).decision
        stage = decision.stage
        if stage is None or not decision.goes_on:
            self.reason = end_text(decision)
            return ()
        self.reason = progress_text(decision)
        return tuple(run for run in left if run.repeat < stage.next_blocks and run.trial_id in stage.trials)

    @property
    def shown(self) -> list[Run]:
        """The runs of the plan that have an answer or come next, in their order."""
        next_ids = {run.run_id for run in self.missing}
        return [run for run in self.plan.runs if run.run_id in self.finished or run.run_id in next_ids]

    def describe(self, run: Run) -> str:
        """What becomes of a run: `done`, `to run` or `skipped: ...`."""
        if run.run_id in self.finished:
            return "done"
        if run.skip:
            return f"skipped: {run.skip}"
        return "to run"

    def summary(self) -> str:
        """A line where nothing is missing, or where the user's code or data have changed; empty otherwise."""
        if self.missing:
            identity = join_identities(run.identity for run in self.plan.runs)
            return describe_stale(self.records, {**identity.code, **identity.data})
        if self.space is not None:
            return f"Nothing to run: the {count_noun(len(self.answered), 'run')} of this search are there."
        if self.reason:
            return f"Nothing to run. {self.reason}"
        if len(self.finished) == 1:
            return "Nothing to run: 1 run is there."
        return f"Nothing to run: all {len(self.finished):,} runs are there."


def proposed_before(space: SearchSpace, records: Iterable[RunRecord]) -> list[RunRecord]:
    """The records of runs that a searcher proposed from this space, with the present code and data."""
    proposed = [record for record in records if record.proposed and space.contains(record.proposed)]
    return [record for record in proposed if space.run_of(record.proposed).run_id == record.run_id]
