"""Which columns of a table are shown: by default as many as fit a page, or those that are asked for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dmls_ray.analysis.metrics import table_metrics
from dmls_ray.analysis.table.columns import INTERVAL
from dmls_ray.analysis.table.model import Column, Table
from dmls_ray.analysis.trials.axis import BATCHES
from dmls_ray.analysis.trials.trial import Trial, name_of_change
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
    if list(names) == [ALL] or not table.rows:
        return Shown(table.columns)
    count = len(table.varied)
    factors, others = table.columns[:count], table.columns[count:]
    if names:
        named = [_named(table, name) for name in names]
        return Shown([*factors, *(column for column in named if column not in factors)])
    telling = _telling(table, factors)
    spare = _spare_first(table, telling, others)
    # So many go that a page has room for the others.
    hidden = spare[: max(0, len(telling) + len(others) - MOST_COLUMNS)]
    kept = [column for column in (*telling, *others) if column not in hidden]
    unseen = {*table.constant}
    if any(column.head == CHANGE for column in telling):
        unseen |= {*table.changed}
    left_out = [_head(column) for column in table.columns if column not in kept and column.head not in unseen]
    return Shown(kept, left_out, [column.head for column in spare[len(hidden) :]])


def _telling(table: Table, factors: Sequence[Column]) -> list[Column]:
    """The factors that distinguish rows; fields that were changed one at a time are one column."""
    kept = [column for column in factors if column.head not in table.constant]
    if len([column for column in kept if column.head in table.changed]) < 2:
        return kept

    def change(row: Trial) -> str:
        return name_of_change(row, table.changed)

    column = Column(CHANGE, change, lambda row: {CHANGE: change(row)})
    return [*(item for item in kept if item.head not in table.changed), column]


def _spare_first(table: Table, factors: Sequence[Column], others: Sequence[Column]) -> list[Column]:
    """The columns that a page can spare, the first first.

    Those that say nothing new: outcomes that are all ok, and the batch that follows from the other one. Then those that
    metrics name as spare; then, from the right, columns of one text in all rows, others, measures of the answer, and
    what the sweep asks for.
    """
    heads = spare_heads()
    measures = {measure.name for measure in table.questions.measures(table.rows)}
    asked = {name for name, metric in table_metrics().items() if table.asked & {*metric.asked_by}}
    is_all_ok = all(row.outcome == Outcome.OK for row in table.rows)
    needed = {"n", CHANGE, *table.varied}
    if table.best_by is not None or not asked:
        needed.add(_head(others[0]))
    # The column of the first measure has the outcome of each trial without a value.
    if any(row.counted and row.outcome != Outcome.OK for row in table.rows):
        needed.add("outcome")
    if {"batch_per_rank", "global_batch"} <= needed:
        needed.remove("global_batch" if table.fixed_batch_field == "batch_per_rank" else "batch_per_rank")

    def rank(column: Column) -> int:
        names = column.values(table.rows[0]).keys()
        if names & asked:
            return 6
        if names & {"outcome", *BATCHES}:
            return 1 if is_all_ok or "outcome" not in names else 3
        if _head(column) in heads:
            return 2
        if names & measures:
            return 5
        return 3 if len({column.text(row) for row in table.rows}) == 1 else 4

    spare = [column for column in reversed([*factors, *others]) if _head(column) not in needed]
    spare.sort(key=lambda column: heads.index(_head(column)) if _head(column) in heads else 0)
    return sorted(spare, key=rank)


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
