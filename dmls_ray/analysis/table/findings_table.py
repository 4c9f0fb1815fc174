"""`AnswerTable`: an answer as a headline, a table of effects, a line on what is undecided and a line of why."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from dmls_ray.analysis.findings.answer import MOST_ROWS, Answer
from dmls_ray.analysis.findings.decide import Decision
from dmls_ray.analysis.findings.effects import Comparison, Effect
from dmls_ray.analysis.words import claim_text, effect_cell, effect_head, headline_text, undecided_text, why_text

COMPARED, WHERE, COUNT = "compared", "where", "n"
"""Heads of the columns besides those of effects."""
_WIDEST_LABEL = 34
"""Characters of a line in the first column."""
_NARROWEST_HEAD = 10


@dataclass(frozen=True)
class AnswerTable:
    """An answer, ready to be written."""

    answer: Answer
    decision: Decision | None = None
    """What is known of all comparisons; None where that is not said."""

    @cached_property
    def headline(self) -> str:
        """The answer in a sentence."""
        return headline_text(self.answer)

    @cached_property
    def undecided(self) -> str:
        """What is not known, and what would decide it; empty where nothing is compared."""
        return undecided_text(self.answer, self.decision)

    @cached_property
    def why(self) -> str:
        """Where the difference between the two trials of the headline goes; empty where it is not known."""
        return why_text(self.answer.why)

    @cached_property
    def left_out(self) -> str:
        """How many comparisons the table leaves out; empty where it has all."""
        count = len(self.answer.comparisons) - MOST_ROWS
        return f"Left out: {count} more comparisons; --format json of dmls-ray table has them." if count > 0 else ""

    @cached_property
    def frames(self) -> list[pd.DataFrame]:
        """The effects as texts, a row a comparison. Comparisons without a common measure are in several tables."""
        return [_frame(block) for block in _blocks(self.answer.comparisons[:MOST_ROWS])]

    def lines(self, width: int) -> list[str]:
        """The answer for a terminal.

        Args:
            width: characters of a line.
        """
        lines = textwrap.wrap(self.headline, width, break_on_hyphens=False)
        for frame in self.frames:
            lines += ["", *_fitted(frame, width)]
        if self.frames:
            lines.append("")
        for text in (self.left_out, self.undecided, self.why):
            lines += textwrap.wrap(text, width, break_on_hyphens=False)
        return lines

    def as_dict(self) -> dict[str, Any]:
        """The answer for programs: all effects, with what is open."""
        decision = self.decision
        return {
            "headline": self.headline,
            "effects": [effect.as_dict() for comparison in self.answer.comparisons for effect in comparison],
            "comparisons": None if decision is None else len(decision.claims),
            "open": None if decision is None else [claim_text(claim) for claim in decision.open],
            "repeats_wanted": None if decision is None or not decision.open else decision.wanted.repeats or None,
            "undecided": self.undecided,
            "why": None if self.answer.why is None else vars(self.answer.why),
        }


def _blocks(comparisons: Sequence[Comparison]) -> list[list[Comparison]]:
    """Runs of comparisons that have a measure in common."""
    blocks: list[list[Comparison]] = []
    heads: set[str] = set()
    for comparison in comparisons:
        own = {effect.measure.name for effect in comparison}
        if not blocks or not own & heads:
            blocks.append([])
            heads = set()
        blocks[-1].append(comparison)
        heads |= own
    return blocks


def _frame(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    columns = _columns(comparisons)
    rows = []
    for comparison in comparisons:
        cells = {COMPARED: comparison[0].pair.label, WHERE: comparison[0].pair.where}
        cells |= {effect_head(effect): effect_cell(effect) for effect in comparison}
        rows.append(cells | {COUNT: str(max(effect.contrast.n for effect in comparison))})
    frame = pd.DataFrame(rows, columns=[COMPARED, WHERE, *columns, COUNT]).fillna("")
    return frame if frame[WHERE].any() else frame.drop(columns=WHERE)


def _columns(comparisons: Sequence[Comparison]) -> list[str]:
    """The heads of the effects; without memory and settings that are equal in all rows."""
    by_head: dict[str, list[Effect]] = {}
    for effect in itertools.chain.from_iterable(comparisons):
        by_head.setdefault(effect_head(effect), []).append(effect)
    return [head for head, effects in by_head.items() if any(map(_is_shown, effects))]


def _is_shown(effect: Effect) -> bool:
    return effect.measure.is_judged or effect.verdict != "equal"


def _fitted(frame: pd.DataFrame, width: int) -> list[str]:
    """The lines of a table: as it is, or intervals below their values, or without its last columns as well."""
    lines = _lines(frame, is_stacked=False)
    spare = [COUNT, *reversed(frame.columns[2:-1])]
    for count in range(len(spare)):
        if max(map(len, lines)) <= width:
            break
        lines = _lines(frame.drop(columns=spare[:count]), is_stacked=True)
    return lines


def _lines(frame: pd.DataFrame, *, is_stacked: bool) -> list[str]:
    columns = []
    for head in frame.columns:
        cells = [_broken(cell, head, is_stacked=is_stacked) for cell in frame[head]]
        widest = max(len(line) for cell in cells for line in cell)
        title = "" if head in (COMPARED, WHERE) else head
        heads = textwrap.wrap(title, max(widest, _NARROWEST_HEAD), break_long_words=False) or [""]
        width = max(widest, *map(len, heads))
        columns.append([[line.ljust(width) for line in cell] + [" " * width] for cell in (heads, *cells)])
    lines = []
    for row in zip(*columns, strict=True):
        height = max(len(cell) for cell in row) - 1
        for number in range(height):
            lines.append("  ".join(cell[min(number, len(cell) - 1)] for cell in row).rstrip())
    return lines


def _broken(cell: str, head: str, *, is_stacked: bool) -> list[str]:
    """The lines of a cell."""
    if head == COMPARED:
        return textwrap.wrap(cell, _WIDEST_LABEL, break_on_hyphens=False) or [""]
    return cell.replace(" [", "\n[").split("\n") if is_stacked else [cell]
