"""What of a table is shown: as many columns as fit a page, those that are asked for, or a table of the reports.

The reports have tables by batch, by rank, by backend, by machines, and of normal against quantized.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmls_ray.analysis.metrics import MEMORY_KINDS, MEMORY_METRICS, table_metrics
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.layout import Layout
from dmls_ray.analysis.table.model import COUNTED, Column, Table, all_columns, further_columns
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.trials.axis import BATCHES
from dmls_ray.analysis.trials.trial import name_of_change
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.text import did_you_mean
from dmls_ray.workloads.registry import workload_classes

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RenderedTable:
    """A table as texts, and what its reader must know."""

    frame: pd.DataFrame
    notes: Sequence[str]


def all_layouts() -> dict[str, Layout]:
    """Return the tables of training and those that workloads add, by name.

    Raises:
        ConfigError: the presentation of a workload cannot be loaded.
    """
    layouts = dict(LAYOUTS)
    for workload in workload_classes():
        layouts |= Presentation.of(workload()).layouts
    return layouts


def render(results: Results, name: str) -> RenderedTable:
    """A table for one question, of the runs of a sweep.

    Args:
        results: the runs.
        name: the layout, as after `--by`.
    """
    import pandas as pd

    layout = all_layouts()[name]
    shown = results.of(layout.select(results.records))
    if results.records and not shown.records:
        return RenderedTable(pd.DataFrame(), [layout.nothing])
    table = make_table(shown, layout.factors)
    frame = layout.frame(table)
    if frame.empty:
        return RenderedTable(frame, [layout.nothing])
    filled = [head for head in frame.columns if (frame[head] != "").any()]
    notes = [layout.note, *table.notes] if layout.note else table.notes
    return RenderedTable(frame[filled], notes)


_TIME_MEMORY_ACCURACY = ("total_s", "epoch_s", *MEMORY_METRICS, "peak_mem_mb", "test_accuracy")
"""Reports give memory in another unit."""

LAYOUTS: Mapping[str, Layout] = {
    "batch": Layout(factors=("batch_per_rank", "world_size"), metrics=_TIME_MEMORY_ACCURACY),
    "rank": Layout(
        by_rank=True,
        metrics=("total_s", "tflop_per_s", "mfu", *MEMORY_METRICS, *MEMORY_KINDS, "train_accuracy", "test_accuracy"),
        note="Each row is one rank of a trial, with means over its runs. Accuracies are over the samples of that "
        "rank. All ranks have the same model; only their samples differ.",
    ),
    "backend": Layout(
        factors=("batch_per_rank", "backend"),
        metrics=_TIME_MEMORY_ACCURACY,
        select=lambda records: [record for record in records if record.config.get("world_size", 1) > 1],
        nothing="All runs have one rank, which has no backend.",
    ),
    "memory": Layout(
        factors=("batch_per_rank", "world_size"),
        metrics=("tensor_mem_mib", *MEMORY_KINDS, "data_mib", "device_mem_mib", "host_mem_mib", "peak_mem_mb"),
    ),
    "machines": Layout(
        by_machine=True,
        note="Each row is a machine, or machines, that measured whole blocks: its speed against that of all others, by "
        "the mean of each block.",
        nothing="No machines measured whole blocks with times, so none is compared; --by scaling is the table of "
        "numbers of machines.",
    ),
    "scaling": Layout(
        factors=("machines", "ranks_per_machine", "backend"),
        metrics=("total_s", "epoch_s", "images_per_s", "speed_up", "exposed_comm_ms", "link_round_trip_ms",
                 "link_mbit_per_s", "test_accuracy"),
    ),
    "quantization": Layout(
        factors=("world_size", "quantization"),
        metrics=("total_s", "epoch_s", "test_accuracy", "int8_test_accuracy", "fp32_checkpoint_bytes",
                 "int8_checkpoint_bytes", "fp32_eager_ms_p50", "fp32_compiled_ms_p50", "int8_compiled_ms_p50"),
    ),
}  # fmt: skip
"""The tables of training by their names after `--by`."""


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
        return [
            f"Not shown: {', '.join(self.left_out)}; dmls-ray table {shlex.quote(folder)} --columns all shows them."
        ]


def spare_heads() -> list[str]:
    """Heads that a page or a narrow terminal leaves out first, the first first, unless the sweep asks for them."""
    spare = _SPARE | {metric.label: metric.spare for metric in table_metrics().values() if metric.spare}
    return sorted(spare, key=spare.__getitem__)


def shown_columns(table: Table, names: Sequence[str] = ()) -> Shown:
    """The columns that are shown.

    Args:
        table: the table.
        names: heads, or metrics that any trial has, shown next to the factors; `all`; empty for the columns of a page.

    Raises:
        ConfigError: the table has no such column.
    """
    if list(names) == [ALL] or not table.rows:
        return Shown(all_columns(table))
    count = len(table.varied)
    if names:
        # A factor that is named, too, has one column.
        return Shown(list(dict.fromkeys([*table.columns[:count], *(_named(table, name) for name in names)])))
    columns = [*_telling(table), *table.columns[count:]]
    spare = _spare_first(table, columns, answer=table.columns[count].name)
    # So many go that a page has room for the others.
    excess = max(0, len(columns) - MOST_COLUMNS)
    kept = [column for column in columns if column not in spare[:excess]]
    left_out = [column.title for column in columns if column in spare[:excess]]
    return Shown(kept, left_out, [column.head for column in spare[excess:]])


def _telling(table: Table) -> list[Column]:
    """The factors that distinguish rows; fields that were changed one at a time are one column."""
    kept = [name for name in table.varied if name not in table.constant]
    changed = [name for name in kept if name in table.changed]
    # Those of the table, since a workload may write some otherwise.
    factors = dict(zip(table.varied, table.columns, strict=False))
    if len(changed) < 2:
        return [factors[name] for name in kept]
    change = Column(CHANGE, CHANGE, lambda row: name_of_change(row, table.changed))
    return [*(factors[name] for name in kept if name not in changed), change]


def _spare_first(table: Table, columns: Sequence[Column], answer: str) -> list[Column]:
    """The columns that a page can spare, the first first.

    Those that say nothing new: outcomes that are all ok, and the batch that follows from the other one. Then those that
    metrics name as spare; then, from the right, columns of one text in all rows, others, measures of the answer, and
    what the sweep asks for.
    """
    heads = spare_heads()
    measures = {measure.name for measure in table.questions.measures(table.rows)}
    asked = {name for name, metric in table_metrics().items() if table.asked & {*metric.asked_by}}
    needed = {"n", "clocks_held_by", COUNTED, CHANGE, *table.varied}
    if table.best_by is not None or not asked:
        needed.add(answer)
    # The column of the first measure has the outcome of each trial without a value.
    if any(row.counted and row.outcome != Outcome.OK for row in table.rows):
        needed.add("outcome")
    if {"batch_per_rank", "global_batch"} <= needed:
        needed.remove("global_batch" if table.fixed_batch_field == "batch_per_rank" else "batch_per_rank")

    def rank(column: Column) -> tuple[int, int]:
        texts = {column.text(row) for row in table.rows}
        if column.name in asked:
            return 6, 0
        if column.name in BATCHES or (column.name == "outcome" and texts == {Outcome.OK}):
            return 1, 0
        if column.title in heads:
            return 2, heads.index(column.title)
        if column.name in measures:
            return 5, 0
        if len(texts) == 1 or column.name == "outcome":
            return 3, 0
        return 4, 0

    spare = [column for column in reversed(columns) if column.name not in needed]
    return sorted(spare, key=rank)


def _named(table: Table, name: str) -> Column:
    columns = [*table.columns, *further_columns(table)]
    for column in columns:
        if name in (column.title, column.head, column.name):
            return column
    heads = [column.title for column in columns]
    raise ConfigError(
        f"--columns {name}: this table has no such column; {did_you_mean(name, heads)}choose from {', '.join(heads)}, "
        "or all."
    )
