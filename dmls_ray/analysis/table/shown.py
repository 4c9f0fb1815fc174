"""Which columns of a table are shown: by default as many as fit a page, or those that are asked for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dmls_ray.analysis.table.columns import INTERVAL
from dmls_ray.analysis.table.model import Column, Table
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.text import did_you_mean

ALL = "all"
MOST_COLUMNS = 8

SPARE = (
    "train acc.", "host MiB", "s/run", "exposed comm. ms", "efficiency", "peak MiB", "device MiB", "s/epoch",
    "test loss", "train loss",
)  # fmt: skip
"""Columns that a page or a narrow terminal leaves out, the least informative first."""


@dataclass(frozen=True)
class Shown:
    """Columns of a table that are shown."""

    columns: Sequence[Column]
    left_out: Sequence[str] = ()
    """Heads of the others."""

    def notes(self, folder: str) -> list[str]:
        """A line about the columns that are left out, if there are any, and how to see them."""
        if not self.left_out:
            return []
        return [f"Not shown: {', '.join(self.left_out)}; dmls-ray table {shlex.quote(folder)} --columns all has them."]


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
        return Shown([*factors, *(_named(table, name) for name in names)])
    kept = list(table.columns)
    for head in (*_that_follow(table), *SPARE):
        if len(kept) > MOST_COLUMNS:
            kept = [column for column in kept if _head(column) != head]
    return Shown(kept, [_head(column) for column in table.columns if column not in kept])


def _that_follow(table: Table) -> list[str]:
    """Columns that say nothing new: outcomes that are all ok, and the batch that follows from the other one."""
    heads = ["outcome"] if all(row.outcome == Outcome.OK for row in table.rows) else []
    if {"batch_per_rank", "global_batch"} <= {*table.varied}:
        heads.append("global_batch" if table.fixed_batch_field == "batch_per_rank" else "batch_per_rank")
    return heads


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
