"""`SweepSummary`: the table of a sweep's runs, and their answer to its question.

`AnswerTable`: an answer as a headline, a line of why, a table of effects and a line on what is undecided.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any

from dmls_ray.analysis import words, words_on_pairs, words_on_training
from dmls_ray.analysis.advise.rank import race_for
from dmls_ray.analysis.findings.answer import MOST_ROWS, Answer
from dmls_ray.analysis.findings.effects import Comparison
from dmls_ray.analysis.findings.question import Decision, SweepQuestion, answer_of, decide
from dmls_ray.analysis.findings.same_training import training_change
from dmls_ray.analysis.json_objects import EffectObject, TrialObject
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Note, Table
from dmls_ray.analysis.trials.trial import Trial

COMPARED, WHERE, TRAINING, COUNT = "compared", "where", "training", "n"
"""Heads of the columns besides those of effects."""
_WIDEST_LABEL = 34
"""Characters of a line in the first column."""
_NARROWEST_HEAD = 10


@dataclass
class AnswerTable:
    """An answer, ready to be written."""

    answer: Answer
    decision: Decision | None = None
    """What is known of all comparisons; None where that is not said."""

    def __post_init__(self) -> None:
        self.headline = words.headline_text(self.answer)
        """The answer in a sentence."""
        change = training_change(self.answer.lead[0].pair) if self.answer.lead else None
        self.training = words_on_training.training_text(change)
        """Whether these two trials train the same; empty where that was not seen."""
        beside = [words.beside_text(other) for other in self.answer.beside]
        overfitting = words.overfitting_text(self.answer)
        sentences = [self.training, words_on_training.why_text(self.answer.why), *beside, overfitting]
        self.sentences = [sentence for sentence in sentences if sentence]
        """What follows the headline: the training, where the difference of steps goes, what other fields do, and which
        trials overfit."""
        self.tables = [_cells(block) for block in _blocks(self.answer.comparisons[:MOST_ROWS])]
        """The effects as texts, a row a comparison. Comparisons without a common measure are in several tables."""
        effects = chain.from_iterable(self.answer.comparisons)
        self.intervals = ""
        """What the intervals of the tables are; empty without any."""
        if any(effect.contrast.half_width for effect in effects):
            self.intervals = words.INTERVALS
        self.left_out = ""
        """How many comparisons the table leaves out; empty where it has all."""
        count = len(self.answer.comparisons) - MOST_ROWS
        if count > 0:
            self.left_out = f"Left out: {count} more comparisons; --format json of dmls-ray table has them."
        self.undecided = words.undecided_text(self.answer, self.decision)
        """What is not known, and what would decide it; empty where nothing is compared."""

    def lines(self, width: int) -> list[str]:
        """The answer for a terminal.

        Args:
            width: characters of a line.
        """
        lines = []
        for text in (self.headline, *self.sentences):
            lines += textwrap.wrap(text, width, break_on_hyphens=False)
        for cells in self.tables:
            lines += ["", *_fitted(cells, width)]
        if self.intervals:
            lines += textwrap.wrap(self.intervals, width, break_on_hyphens=False)
        if self.tables:
            lines.append("")
        for text in (self.left_out, self.undecided):
            lines += textwrap.wrap(text, width, break_on_hyphens=False)
        return lines

    def json_fields(self) -> dict[str, Any]:
        """Those of an `AnswerObject` that need no more than the answer: all effects, with what is open."""
        decision = self.decision
        objects = []
        for comparison in self.answer.comparisons:
            change = training_change(comparison[0].pair)
            objects += [EffectObject.of_effect(effect, change) for effect in comparison]
        return {
            "headline": self.headline,
            "training": self.training,
            "effects": objects,
            "comparisons": decision and len(decision.claims),
            "open": decision and [words.claim_text(claim) for claim in decision.open],
            "repeats_wanted": decision and max(decision.realistic, default=None),
            "undecided": self.undecided,
            "why": self.answer.why,
        }


def _blocks(comparisons: Sequence[Comparison]) -> list[list[Comparison]]:
    """Runs of comparisons that have a measure in common."""
    blocks: list[list[Comparison]] = []
    heads: set[str] = set()
    for comparison in comparisons:
        own = {effect.measure.name for effect in comparison}
        if not own & heads:
            blocks.append([])
            heads = set()
        blocks[-1].append(comparison)
        heads |= own
    return blocks


def _cells(comparisons: Sequence[Comparison]) -> dict[str, list[str]]:
    """The effects as texts: a row a comparison."""
    rows = []
    telling = set()
    for comparison in comparisons:
        pair = comparison[0].pair
        row = {COMPARED: words_on_pairs.pair_label(pair), WHERE: words_on_pairs.place_text(pair)}
        for effect in comparison:
            head = words.effect_head(effect)
            row[head] = words.effect_cell(effect)
            # Memory and settings that are equal in all rows have no column.
            if effect.measure.is_judged or effect.verdict != "equal":
                telling.add(head)
        row[TRAINING] = words_on_training.training_cell(training_change(pair))
        rows.append(row | {COUNT: str(min(effect.contrast.n for effect in comparison if effect.measure.is_outcome))})
    heads = dict.fromkeys(chain.from_iterable(rows))
    cells = {head: [row.get(head, "") for row in rows] for head in heads}
    shown = [head for head in heads if head in telling]
    # Where it is the same in all rows, the line below the headline says it.
    if len(set(cells[TRAINING])) > 1:
        shown.append(TRAINING)
    if any(cells[WHERE]):
        shown.insert(0, WHERE)
    return {head: cells[head] for head in (COMPARED, *shown, COUNT)}


def _fitted(cells: Mapping[str, list[str]], width: int) -> list[str]:
    """The lines of a table: as it is, or intervals below their values, or without its last columns as well."""
    lines = _lines(cells)
    stacked = {head: [text.replace(" [", "\n[") for text in texts] for head, texts in cells.items()}
    spare = [COUNT, *reversed([*cells][2:-1])]
    for count in range(len(spare)):
        if max(len(line) for line in lines) <= width:
            break
        lines = _lines({head: texts for head, texts in stacked.items() if head not in spare[:count]})
    return lines


def _lines(table: Mapping[str, list[str]]) -> list[str]:
    """The lines of a table, whose cells may have several."""
    columns, widths = [], []
    for head, texts in table.items():
        cells = [text.split("\n") for text in texts]
        if head == COMPARED:
            cells = [textwrap.wrap(text, _WIDEST_LABEL, break_on_hyphens=False) for text in texts]
        widest = max(len(line) for cell in cells for line in cell)
        title = "" if head in (COMPARED, WHERE) else head
        heads = textwrap.wrap(title, max(widest, _NARROWEST_HEAD), break_long_words=False)
        columns.append([heads, *cells])
        widths.append(max([widest, *(len(line) for line in heads)]))
    lines = []
    for row in zip(*columns, strict=True):
        for parts in zip_longest(*row, fillvalue=""):
            padded = [part.ljust(width) for part, width in zip(parts, widths, strict=True)]
            lines.append("  ".join(padded).rstrip())
    return lines


@dataclass(frozen=True)
class SweepSummary:
    """What the runs of a sweep say."""

    results: Results
    question: SweepQuestion
    has_verdict: bool = False
    """Whether a verdict follows, which says what is open and how many repeats decide it, in place of the answer."""

    @cached_property
    def table(self) -> Table:
        """A row a trial; of a search, the best one first."""
        table = make_table(self.results, self.question.varied, best_by=self.question.best_by, given=self.question.given)
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
        left = len(asked - {record.run_id for record in self.results.records if record.mode != "search"})
        return words.describe_unfinished(left, len(asked)) if left else ""

    @cached_property
    def answer(self) -> AnswerTable:
        """The answer: a headline, a table of effects, what is undecided, and why."""
        is_decided_elsewhere = self.has_verdict or self.question.metric or self.unfinished
        return AnswerTable(answer_of(self.table, self.question), None if is_decided_elsewhere else self.decision)

    def json_fields(self) -> dict[str, Any]:
        """The fields of an `AnswerObject`: the answer and the trials for programs."""
        trials = [_trial_object(row, self.table.varied) for row in self.table.rows]
        return {"folder": str(self.results.where), **self.answer.json_fields(), "trials": trials}


def _trial_object(row: Trial, varied: Sequence[str]) -> TrialObject:
    return TrialObject(
        trial_id=row.trial_id,
        values={name: row.records[0].config.get(name) for name in varied},
        outcome=row.outcome,
        n=len(row.counted),
        metrics=row.estimates,
    )


def summarize(results: Results) -> SweepSummary:
    """All runs of a folder, read by what its sweep.json says was asked.

    Raises:
        StoreError: sweep.json cannot be read.
    """
    return SweepSummary(results, SweepQuestion.of(results.sessions))
