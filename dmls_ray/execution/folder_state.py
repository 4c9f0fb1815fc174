"""`FolderState`: what a results folder holds of a plan, what is missing, and why it is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.words import count_noun
from dmls_ray.config.grid import Plan, Run
from dmls_ray.config.identity import join_identities
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import SearchSpace
from dmls_ray.execution.blocks import blocks_of
from dmls_ray.execution.planning import finished_run_ids
from dmls_ray.execution.run_folder import run_folder
from dmls_ray.execution.search import proposed_before
from dmls_ray.records.model import RunRecord
from dmls_ray.records.stale import describe_stale


class FolderState:
    """A results folder compared with a plan, before any of its runs starts.

    Args:
        plan: the runs.
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
        self.plan, self.records = plan, records
        self._options, self._space = options, space
        self.finished = finished_run_ids(plan, records, options)
        """The run_id of each run that has an answer."""
        self.blocks = blocks_of(plan, options.until, options.axis, self.finished, results)
        """Hands out the runs that follow the missing ones."""
        self.missing = self.blocks.next()
        """The runs that come next; of a searcher's the examples of the plan, if it is to propose more."""
        self.reason = self.blocks.reason
        """Why these come next, or why none does; empty where runs of the plan are simply not there."""
        self._proposed = 0
        if space is not None:
            earlier = proposed_before(space, records)
            self._proposed = sum(record.outcome.is_answer() for record in earlier)
            has_enough = self._proposed >= space.at_most(options.samples)
            self.missing = () if has_enough else plan.runs

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
        if self._space is not None:
            return f"Nothing to run: the {count_noun(self._proposed, 'run')} of this search are there."
        if self.reason:
            return f"Nothing to run. {self.reason}"
        if len(self.finished) == 1:
            return "Nothing to run: 1 run is there."
        return f"Nothing to run: all {len(self.finished):,} runs are there."

    def notes_on_files(self, folder: Path) -> Iterator[str]:
        """Notes about files that runs were asked for and do not have.

        Args:
            folder: the results folder.
        """
        options = self._options
        repeats_with = {
            "weights.pt": self.plan.repeats if options.save_weights else 0,
            "trace-rank0.json.gz": options.trace,
        }
        for name, repeats in repeats_with.items():
            ended = [run for run in self.plan.runs if run.run_id in self.finished and run.repeat < repeats]
            folders = [run_folder(folder, run.run_id) for run in ended]
            lacking = [path for path in folders if not (path / name).exists()]
            if lacking:
                yield (
                    f"{count_noun(len(lacking), 'run')} that ended before left no {name}, which is written at the end "
                    "of a run. Pass --fresh to run all again."
                )
