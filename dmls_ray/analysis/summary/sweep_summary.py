"""The question of a sweep, and the answer of its runs: a table, a headline and a few lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary.answer import Answer, Finding
from dmls_ray.analysis.summary.held_fixed import held_fixed
from dmls_ray.analysis.summary.phrases import count_noun
from dmls_ray.analysis.summary.repeats import Look, look_at, undecided_of
from dmls_ray.analysis.summary.search import answer_of_search
from dmls_ray.analysis.summary.variants import answer_on_variants
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Note, Table
from dmls_ray.storage.sweep_file import read_sweep


@dataclass(frozen=True, kw_only=True)
class SweepQuestion:
    """The question of a sweep."""

    text: str = ""
    """In words."""
    varied: tuple[str, ...] = ()
    """Fields that were given several values."""
    axis: str | None = None
    """The field that it asks about; None for the first that varies."""
    changed: tuple[str, ...] = ()
    """Fields that were changed one at a time."""
    metric: str | None = None
    """What was searched for; None where runs were measured."""
    minimizes: bool = False
    """Whether less of the metric is better."""
    asked: frozenset[str] = frozenset()
    """run_id of every run that the last call asked for; empty where that is not known, as in a search."""
    is_fresh: bool = False
    """Whether that call started a new folder, which the same command would not continue."""

    @property
    def best_by(self) -> tuple[str, bool] | None:
        """What was searched for, and whether less of it is better; None where runs were measured."""
        return (self.metric, self.minimizes) if self.metric else None

    @classmethod
    def of(cls, sessions: Sequence[Mapping[str, Any]]) -> SweepQuestion:
        """What the calls that filled a folder asked: what any of them varied, and the last one's axis."""
        values: dict[str, set[str]] = {}
        for session in sessions:
            for name, given in session.get("axes", {}).items():
                values.setdefault(name, set()).update(map(repr, given))
        last = sessions[-1] if sessions else {}
        trials, repeats = last.get("trials", []), last.get("repeats", 0)
        return cls(
            text=last.get("question", ""),
            varied=tuple(name for name, given in values.items() if len(given) > 1),
            axis=last.get("axis"),
            changed=tuple(last.get("changed", ())),
            metric=last["metric"] if last.get("mode") == "search" else None,
            minimizes=bool(last.get("minimizes")),
            asked=frozenset(f"{trial}-{repeat}" for trial in trials for repeat in range(repeats)),
            is_fresh="--fresh" in last.get("command", []),
        )


@dataclass(frozen=True)
class SweepSummary:
    """The answer of a sweep's runs to its question."""

    results: Results
    question: SweepQuestion

    @cached_property
    def table(self) -> Table:
        """A row a trial; of a search, the best one first."""
        table = make_table(self.results, self.question.varied, best_by=self.question.best_by)
        table.axis, table.changed = self._axis_of(table), self.question.changed
        table.is_asked = self.question.axis is not None
        if fixed := held_fixed(table):
            table.typed_notes.insert(0, Note("held_fixed", fixed))
        if self.unfinished:
            table.typed_notes.append(Note("unfinished", self.unfinished))
        look = look_at(table, self.question.varied, self.question.changed)
        if look is not None and not self.unfinished and look.result:
            table.typed_notes.append(Note("repeats", look.result))
        return table

    @property
    def look(self) -> Look | None:
        """What the comparisons of the answer say; None if the number of repeats was given."""
        return look_at(self.table, self.question.varied, self.question.changed)

    @cached_property
    def unfinished(self) -> str:
        """How many of the runs that were asked for have not ended, and what runs them; empty where all have."""
        asked = self.question.asked
        left = len(asked - {record.run_id for record in self.results.records if record.mode == "bench"})
        if not left:
            return ""
        again = ", with --out on this folder in place of --fresh," if self.question.is_fresh else ""
        have, them = ("has", "it") if left == 1 else ("have", "them")
        return (
            f"{left:,} of the {len(asked):,} runs that were asked for {have} not ended; the same command{again} runs "
            f"{them}."
        )

    @property
    def axis(self) -> str:
        """The field that the answer goes along: the one that was asked about, if it varies."""
        return self.table.axis

    def _axis_of(self, table: Table) -> str:
        asked = self.question.axis
        return asked if asked in table.varied else next(iter(self.question.varied), asked or "batch_per_rank")

    @cached_property
    def answer(self) -> Answer:
        """The answer, of the rows whose ranks trained together."""
        rows = self.table.rows
        together = [row for row in rows if not row.independent_ranks]
        if len(together) == len(rows):
            return self._answer(self.table)
        if not together:
            return Answer("In no row did the ranks train one model together, so nothing can be compared.")
        left_out = f"{len(rows) - len(together)} of {count_noun(len(rows), 'row')}"
        why = Finding("left out", f"{left_out}, since the ranks did not train one model together")
        found = self._answer(replace(self.table, rows=together))
        return replace(found, findings=[*found.findings, why])

    def _answer(self, table: Table) -> Answer:
        question = self.question
        if question.metric:
            return answer_of_search(table, question.metric, minimizes=question.minimizes)
        found = answer_on_variants(table, question.changed) if question.changed else answer_on_axis(table, self.axis)
        if self.unfinished or not found.is_of_comparisons:
            return found
        undecided = undecided_of(self.table, question.varied, question.changed)
        if not undecided and self.look is not None and self.look.claims:
            undecided = f"none of {count_noun(len(self.look.claims), 'comparison')}"
        return replace(found, findings=[*found.findings, Finding("undecided", undecided)]) if undecided else found


def answer_on_axis(table: Table, axis: str) -> Answer:
    """What an axis does to the metrics of the table's workload."""
    return table.presentation.answer(table, axis)


def summarize(results: Results) -> SweepSummary:
    """All runs of a folder, read by what its sweep.json says was asked.

    Raises:
        StoreError: sweep.json cannot be read.
    """
    return SweepSummary(results, SweepQuestion.of(read_sweep(results.folder).get("sessions", [])))
