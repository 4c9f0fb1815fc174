"""Which columns of a table are shown: by default as many as fit a page, or those that are asked for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dmls_ray.analysis.metrics import table_metrics
from dmls_ray.analysis.table.columns import INTERVAL
from dmls_ray.analysis.table.model import Column, Table
from dmls_ray.analysis.trials.labels import name_of_change
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.text import did_you_mean

ALL = "all"
MOST_COLUMNS = 8
CHANGE = "change"
"""Head of the column that stands for the fields that were changed one at a time."""

_SPARE = {"bound by": 0, "efficiency": 7}
"""Columns of no metric -> as `Metric.spare`."""


@dataclass(frozen=True)
class Shown:
    """Columns of a table that are shown."""

    columns: Sequence[Column]
    left_out: Sequence[str] = ()
    """Heads of the others."""
    spare: Sequence[str] = ()
    """Heads, as the table has them, of columns that a narrow terminal may leave out as well, the first first."""

    def notes(self, folder: str) -> list[str]:
        """A line about the columns that are left out, if there are any, and how to see them."""
        if not self.left_out:
            return []
        return [f"Not shown: {', '.join(self.left_out)}; dmls-ray table {shlex.quote(folder)} --columns all has them."]


def spare_heads() -> list[str]:
    """Heads that a page or a narrow terminal leaves out first, the first first, unless the sweep asks for them."""
    spare = _SPARE | {metric.label: metric.spare for metric in table_metrics().values() if metric.spare}
    return sorted(spare, key=spare.__getitem__)


def shown_columns(table: Table, names: Sequence[str] = ()) -> Shown:
    """The columns that are shown.

    Args:
        table: the table.
        names: heads or metrics, shown next to the factors; `all`; empty for the columns of a page.

    Raises:
        ConfigError: the table has no such column.
    """
    if list(names) == [ALL]:
        return Shown(table.columns)
    factors = table.columns[: len(table.varied)]
    if names:
        named = [_named(table, name) for name in names]
        return Shown([*factors, *(column for column in named if column not in factors)])
    factors = _telling(table, factors)
    kept = [*factors, *table.columns[len(table.varied) :]]
    answers = _asked(table, kept) or _measured(table, kept)[:1]
    spare = dict.fromkeys((*_that_follow(table), *spare_heads(), *_others(table, kept)))
    order = [head for head in spare if head not in map(_head, answers)]
    constant = [_head(column) for column in answers[1:] if _is_constant(table, column)]
    for head in order:
        if len(kept) > MOST_COLUMNS:
            kept = [column for column in kept if _head(column) != head]
    left_out = [_head(column) for column in table.columns if column not in kept and column.head not in table.constant]
    in_change = table.changed if any(column.head == CHANGE for column in kept) else ()
    return Shown(
        kept,
        [head for head in left_out if head not in in_change],
        [column.head for head in (*order, *constant) for column in kept if _head(column) == head],
    )


def _telling(table: Table, factors: Sequence[Column]) -> list[Column]:
    """The factors that distinguish rows; fields that were changed one at a time are one column."""
    kept = [column for column in factors if column.head not in table.constant]
    if len([column for column in kept if column.head in table.changed]) < 2:
        return kept

    def change(row: Row) -> str:
        return name_of_change(row, table.changed)

    column = Column(CHANGE, change, lambda row: {CHANGE: change(row)})
    return [*(item for item in kept if item.head not in table.changed), column]


def _that_follow(table: Table) -> list[str]:
    """Columns that say nothing new: outcomes that are all ok, and the batch that follows from the other one."""
    heads = ["outcome"] if all(row.outcome == Outcome.OK for row in table.rows) else []
    if {"batch_per_rank", "global_batch"} <= {*table.varied}:
        heads.append("global_batch" if table.fixed_batch_field == "batch_per_rank" else "batch_per_rank")
    return heads


def _measured(table: Table, kept: Sequence[Column]) -> list[Column]:
    """The columns after the factors but n. The first one answers, and has the outcome of a trial without an ok run."""
    return [column for column in kept if column.head not in (*table.varied, CHANGE, "n")]


def _asked(table: Table, kept: Sequence[Column]) -> list[Column]:
    """The columns of the metrics that the sweep asks for; a search asks for one alone, whose column is the first."""
    if table.best_by is not None:
        return []
    asked = {name for name, metric in table_metrics().items() if table.asked & {*metric.asked_by}}
    return [column for column in _measured(table, kept) if table.rows and asked & column.values(table.rows[0]).keys()]


def _others(table: Table, kept: Sequence[Column]) -> list[str]:
    """Further columns that can be spared: those that are equal in all rows, then from the right those of no measure of
    the answer, then those of its later measures.
    """
    free = _measured(table, kept)
    names = {measure.name for measure in table.questions.measures(table.rows)}
    measures = [column for column in free if table.rows and names & column.values(table.rows[0]).keys()]
    others = [column for column in free if column not in measures and column.head != "outcome"]
    others.sort(key=lambda column: _is_constant(table, column))  # reversed below
    outcome = ["outcome"] if _outcomes_are_elsewhere(table) else []
    return [*outcome, *map(_head, [*reversed(others), *reversed(measures)])]


def _is_constant(table: Table, column: Column) -> bool:
    """Whether a column has one text in all rows."""
    return len({column.text(row) for row in table.rows}) == 1


def _outcomes_are_elsewhere(table: Table) -> bool:
    """Whether each trial has either a value or an outcome, so that the column of the first measure shows both."""
    return all(row.outcome == Outcome.OK or not row.counted for row in table.rows)


def _named(table: Table, name: str) -> Column:
    for column in table.columns:
        if name in (_head(column), column.head) or (table.rows and name in column.values(table.rows[0])):
            return column
    heads = [_head(column) for column in table.columns]
    raise ConfigError(
        f"--columns {name}: this table has no such column; {did_you_mean(name, heads)}choose from {', '.join(heads)}, "
        "or all."
    )


def _head(column: Column) -> str:
    return column.head.removesuffix(INTERVAL)
