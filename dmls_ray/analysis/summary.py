"""`SweepSummary`: the table of a sweep's runs, and their answer to its question."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dmls_ray.analysis.advise.rank import race_for
from dmls_ray.analysis.findings.question import Decision, SweepQuestion, answer_of, decide
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.findings_table import AnswerTable
from dmls_ray.analysis.table.model import Note, Table
from dmls_ray.analysis.words import describe_unfinished
from dmls_ray.storage.folder import read_sweep


@dataclass(frozen=True)
class SweepSummary:
    """What the runs of a sweep say."""

    results: Results
    question: SweepQuestion

    @cached_property
    def table(self) -> Table:
        """A row a trial; of a search, the best one first."""
        table = make_table(self.results, self.question.varied, best_by=self.question.best_by)
        self.question.ask(table)
        if self.unfinished:
            table.typed_notes.append(Note("unfinished", self.unfinished))
        return table

    @cached_property
    def decision(self) -> Decision:
        """What the comparisons of the question are known to be, and whether more blocks follow."""
        return decide(self.table, self.question.varied, race_for)

    @cached_property
    def unfinished(self) -> str:
        """How many of the runs that were asked for have not ended, and what runs them; empty where all have."""
        asked = self.question.asked
        left = len(asked - {record.run_id for record in self.results.records if record.mode == "bench"})
        return describe_unfinished(left, len(asked)) if left else ""

    @cached_property
    def answer(self) -> AnswerTable:
        """The answer: a headline, a table of effects, what is undecided, and why."""
        decision = None if self.question.metric or self.unfinished else self.decision
        return AnswerTable(answer_of(self.table, self.question), decision)


def summarize(results: Results) -> SweepSummary:
    """All runs of a folder, read by what its sweep.json says was asked.

    Raises:
        StoreError: sweep.json cannot be read.
    """
    return SweepSummary(results, SweepQuestion.of(read_sweep(results.folder).get("sessions", [])))
