"""`Table`: the trials of a sweep as rows, its columns and its notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from dmls_ray.analysis.export.text_tables import markdown, markdown_text
from dmls_ray.analysis.results import field_names
from dmls_ray.analysis.table.row import Row
from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.until import Until
from dmls_ray.records.names import OF_A_FIELD, OF_A_METRIC, OF_A_RECORD, RESERVED, distinct_names

if TYPE_CHECKING:
    from dmls_ray.analysis.presentation import Presentation
    from dmls_ray.analysis.table.stage import Stage


OF_AN_INTERVAL = "interval_"
"""Prefix of an end of the interval of a metric whose name is taken, as `acc_low` next to a metric `acc_low`."""


@dataclass(frozen=True)
class Column:
    """One column of a table: the cell of each trial, as text and as numbers."""

    head: str
    text: Callable[[Row], str]
    values: Callable[[Row], dict[str, Any]]
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


def _heads(column: Column, row: Row) -> list[tuple[str, str]]:
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
    about: str = ""
    """The part that other texts quote: for `measured_on`, hardware, versions and days."""


@dataclass
class Table:
    """A sweep's trials, in the order of their factors."""

    varied: tuple[str, ...]
    rows: list[Row]
    fixed_batch_field: str
    """The field that stays constant where ranks or accum_steps change: `batch_per_rank` or `global_batch`."""
    presentation: Presentation
    """Columns, notes, figures and sentences of its workload."""
    typed_notes: list[Note] = field(default_factory=list)
    """Sentences below the table."""
    columns: list[Column] = field(default_factory=list)
    axis: str = ""
    """The field that the sweep asks about; empty where that is not known."""
    is_asked: bool = True
    """Whether the sweep asks about that field; else about any combination of what it varies."""
    changed: tuple[str, ...] = ()
    """Fields that were changed one at a time."""
    best_by: tuple[str, bool] | None = None
    """What was searched for, and whether less of it is better; None where runs were measured."""
    stage: Stage | None = None
    """How far the sweep is; None if the number of its repeats was given."""

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

    def markdown(self, columns: Sequence[Column] | None = None) -> str:
        """The table, of some columns or of all, and its notes as Markdown."""
        notes = "\n".join(f"- {markdown_text(note)}" for note in self.notes)
        return f"{markdown(self.frame(columns))}\n\n{notes}\n"

    @property
    def until(self) -> Until:
        """Says which differences count as none."""
        return Until() if self.stage is None else self.stage.until

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics that any trial has, in the order of tables."""
        return field_names([row.estimates for row in self.rows])

    @property
    def constant(self) -> set[str]:
        """Fields that have a column and yet distinguish no rows: one of the two batches, where the other varies."""
        if len(self.rows) < 2:
            return set()
        return {name for name in self.varied if len({repr(row.factors[name]) for row in self.rows}) == 1}

    @property
    def is_timed(self) -> bool:
        """Whether any run was in bench mode, so that its times are comparable."""
        return any(record.mode == "bench" for row in self.rows for record in row.records)

    @property
    def varied_specs(self) -> list[FieldSpec]:
        """The fields that vary, as far as the configuration class of the workload has them."""
        specs = self.presentation.workload.specs()
        return [specs[name] for name in self.varied if name in specs]

    @property
    def asked(self) -> set[str]:
        """The fields that vary, and their families: what `Metric.asked_by` names."""
        return {*self.varied, *(spec.setting.family for spec in self.varied_specs)} - {""}

    def has(self, metric: str) -> bool:
        """Whether any trial has this metric."""
        return any(metric in row.estimates for row in self.rows)
