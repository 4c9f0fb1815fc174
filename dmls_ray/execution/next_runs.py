"""`NextRuns`: a results folder compared with a plan: which runs have ended, and which come next.

All that are missing come at once, or, with `--repeats auto`, more blocks until the comparisons are decided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.words import end_text, progress_text
from dmls_ray.config.grid import Plan, Run
from dmls_ray.config.identity import join_identities
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import SearchSpace
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.stale import describe_stale


def kept_records(plan: Plan, records: Iterable[RunRecord], options: Options) -> list[RunRecord]:
    """The records without those of blocks that are run again as a whole."""
    kept = list(records)
    if not options.whole_blocks:
        return kept
    by_id = {record.run_id: record for record in kept}
    sessions: dict[int, set[str]] = defaultdict(set)
    lacking: set[int] = set()
    for run in plan.runs:
        record = by_id.get(run.run_id)
        if record is not None and record.outcome.is_final():
            sessions[run.repeat].add(record.session)
        elif record is None or record.outcome is not Outcome.SKIPPED:
            lacking.add(run.repeat)
    planned = plan.run_ids
    again = lacking | {repeat for repeat, names in sessions.items() if len(names) > 1}
    return [record for record in kept if record.run_id not in planned or record.repeat not in again]


def finished_run_ids(plan: Plan, records: Iterable[RunRecord], options: Options) -> set[str]:
    """The runs of a plan that need not be run again, by the records that are kept.

    A run of a search counts for searches only, since its times were not measured alone. One that a search has stopped
    early does not count where nothing is to be stopped.
    """
    planned = plan.run_ids

    def counts(record: RunRecord) -> bool:
        if record.run_id not in planned or not record.outcome.is_final():
            return False
        if not options.search and record.mode not in ("bench", options.mode):
            return False
        return not (options.search and options.scheduler == "none" and record.is_stopped)

    return {record.run_id for record in kept_records(plan, records, options) if counts(record)}


class NextRuns:
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
        self._next_look = FIRST_LOOK
        """After how many blocks the comparisons are looked at next."""
        self._most_blocks = options.blocks
        """As many blocks may be handed out before the next look."""
        self._repeated: set[str] | None = None
        """The trials that take part in further blocks; None: all."""
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
            self.left_to_propose = space.at_most(options.trials) - len(self.answered)
            self.missing = plan.runs if self.left_to_propose > 0 else ()
            self.candidates = self.missing

    def next(self, open_blocks: Collection[int] = ()) -> tuple[Run, ...]:
        """The next runs.

        Args:
            open_blocks: blocks of which runs have not ended. Without any, an empty result means that those were all.
        """
        runs = self.plan.pending(self._handed_out)
        if self.options.until is not None:
            runs = self._next_blocks(runs, open_blocks)
        self._handed_out |= {run.run_id for run in runs}
        return runs

    def _next_blocks(self, left: Sequence[Run], open_blocks: Collection[int]) -> tuple[Run, ...]:
        """Of the runs that are left: those that ended without an answer and the first blocks, then the next blocks."""
        self.reason = ""
        again = {record.run_id for record in kept_records(self.plan, self.records, self.options)}
        first = tuple(run for run in left if run.repeat < FIRST_LOOK or run.run_id in again)
        if first:
            return first
        if min(open_blocks, default=self._next_look) < self._next_look:
            return self._block_ahead(left)
        # Blocks that are under way count at the next look.
        results = self._results()
        results.records = [record for record in results.records if record.repeat not in open_blocks]
        plan = self.plan
        question = SweepQuestion(varied=plan.varied, given=plan.axes, axis=self.options.axis, changed=plan.changed)
        decision = SweepSummary(results, question).decision
        stage = decision.stage
        self._most_blocks = 0
        if stage is None or not decision.goes_on:
            self.reason = end_text(decision)
            return ()
        self.reason = progress_text(decision)
        self._next_look, self._most_blocks, self._repeated = stage.next_blocks, stage.most, set(stage.blocks_of)
        return tuple(run for run in left if run.repeat < stage.next_blocks and run.trial_id in stage.blocks_of)

    def _block_ahead(self, left: Sequence[Run]) -> tuple[Run, ...]:
        """The next block, for a lane that has nothing to do before the blocks of a look are complete."""
        runs = [run for run in left if self._repeated is None or run.trial_id in self._repeated]
        block = min((run.repeat for run in runs), default=self._most_blocks)
        if block >= self._most_blocks:
            return ()
        return tuple(run for run in runs if run.repeat == block)

    @property
    def shown(self) -> list[Run]:
        """The runs of the plan that have an answer or come next, in their order."""
        next_ids = {run.run_id for run in self.missing}
        return [run for run in self.plan.runs if run.run_id in self.finished or run.run_id in next_ids]

    def describe(self, run: Run) -> str:
        """What becomes of a run: `done`, `to run` or `skipped: ...`."""
        if run.run_id in self.finished:
            return "done"
        return f"skipped: {run.skip}" if run.skip else "to run"

    def summary(self) -> str:
        """A line where nothing is missing, or where the user's code or data have changed; empty otherwise."""
        if self.missing:
            identity = join_identities(run.identity for run in self.plan.runs)
            return describe_stale(self.records, {**identity.code, **identity.data})
        if self.reason:
            return f"Nothing to run. {self.reason}"
        done = self.finished if self.space is None else self.answered
        return f"Nothing to run: all runs have ended before ({len(done):,})."


def proposed_before(space: SearchSpace, records: Iterable[RunRecord]) -> list[RunRecord]:
    """The records of runs that a searcher proposed from this space, with the present code and data."""
    proposed = [record for record in records if record.proposed and space.contains(record.proposed)]
    return [record for record in proposed if space.run_of(record.proposed).run_id == record.run_id]
