"""`Table`: the trials of a sweep as rows, its columns and its notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.names import OF_A_FIELD, OF_A_METRIC, OF_A_RECORD, RESERVED, distinct_names

if TYPE_CHECKING:
    from dmls_ray.analysis.table.presentation import Presentation


OF_AN_INTERVAL = "interval_"
"""Prefix of an end of the interval of a metric whose name is taken, as `acc_low` next to a metric `acc_low`."""


@dataclass(frozen=True)
class Column:
    """One column of a table: the cell of each trial, as text and as numbers."""

    head: str
    text: Callable[[Trial], str]
    values: Callable[[Trial], dict[str, Any]]
    """Name -> number, for programs that read the table."""
    prefix: str = ""
    """Precedes a heading that another column has, too; empty: the heading stays."""


def _distinct(heads: Sequence[tuple[str, str]]) -> list[str]:
    """Distinct headings of headings with their prefixes; those without a prefix stay."""
    named = [head for head, _ in heads]
    taken = {head for head, prefix in heads if not prefix} | {*RESERVED}
    for kind in (OF_A_FIELD, OF_A_RECORD, OF_A_METRIC, OF_AN_INTERVAL):
        places = [place for place, (_, prefix) in enumerate(heads) if prefix == kind]
        columns = distinct_names([named[place] for place in places], taken, kind)
        for place in places:
            named[place] = columns[named[place]]
        taken |= {*columns.values()}
    return named


def _heads(column: Column, row: Trial) -> list[tuple[str, str]]:
    """The names of the numbers of a column, with their prefixes."""
    value, *others = column.values(row)
    return [(value, column.prefix), *((name, column.prefix and OF_AN_INTERVAL) for name in others)]


NoteKind = Literal[
    "held_fixed", "measured_on", "comparability", "baseline", "method", "scaled", "outcome", "unfinished", "repeats"
]


@dataclass(frozen=True)
class Note:
    """A sentence below a table."""

    kind: NoteKind
    text: str


@dataclass
class Table(SweepTrials):
    """The trials of a sweep as rows, with columns and notes."""

    presentation: Presentation = field(kw_only=True)
    """Columns, notes and figures of their workload."""
    typed_notes: list[Note] = field(default_factory=list)
    """Sentences below the table."""
    columns: list[Column] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """The texts of its notes."""
        return [note.text for note in self.typed_notes]

    def frame(self, columns: Sequence[Column] | None = None) -> pd.DataFrame:
        """The cells as text, one column per heading; of some columns, or of all."""
        columns = self.columns if columns is None else columns
        cells = [[column.text(row) for column in columns] for row in self.rows]
        return pd.DataFrame(
            cells, columns=_distinct([(column.head, column.prefix) for column in columns]), dtype=object
        )

    def numbers(self, columns: Sequence[Column] | None = None) -> pd.DataFrame:
        """The cells, of some columns or of all, as numbers: of each metric the mean, the ends of its interval, median
        and deviation.
        """
        columns = self.columns if columns is None else columns
        rows = [[value for column in columns for value in column.values(row).values()] for row in self.rows]
        heads = [head for column in columns for head in _heads(column, self.rows[0])] if self.rows else []
        return pd.DataFrame(rows, columns=_distinct(heads))
