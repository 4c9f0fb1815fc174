"""The tables of the reports: by batch, by rank, by backend, by machines, and normal against quantized."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from dmls_ray.analysis.memory import EXACT, MEMORY, MEMORY_KINDS
from dmls_ray.analysis.metrics import format_of, label_of, quantity_of
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.formatting import format_value
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.build import make_table, with_published
from dmls_ray.analysis.table.columns import ENDING, measure_columns
from dmls_ray.analysis.table.model import Column, Table
from dmls_ray.analysis.table.presentation import installed_presentations
from dmls_ray.analysis.trials.trial import Trial, factor_cells
from dmls_ray.records.epoch_and_rank import RankRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome


@dataclass(frozen=True)
class RenderedTable:
    """A table as texts, and what its reader must know."""

    frame: pd.DataFrame
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A table of the reports."""

    factors: tuple[str, ...] = ()
    """The first columns; other fields that vary follow."""
    metrics: tuple[str, ...] = ()
    """The columns after them; without any, those of the sweep's table."""
    select: Callable[[Sequence[RunRecord]], Sequence[RunRecord]] = list
    """Chooses the runs that it shows, or changes their fields."""
    nothing: str = ""
    """Note where it shows none of the runs."""
    published: Callable[[], Results] | None = None
    """The published runs that it shows, if they are not those of a report's data set."""

    def frame(self, table: Table) -> pd.DataFrame:
        """The cells as texts."""
        if not self.metrics:
            return table.frame()
        columns = measure_columns(table, self.metrics)
        heads = self.heads(table)
        rows = sorted(table.rows, key=lambda row: row.position(heads))
        cells = [_with_factors(row, heads, _texts(row, columns)) for row in rows]
        return pd.DataFrame(cells, dtype=object)

    def heads(self, table: Table) -> list[str]:
        """The fields that distinguish rows; the batch once."""
        names = dict.fromkeys((*self.factors, *table.varied))
        return [name for name in names if name != "global_batch"]


class RankLayout(Layout):
    """A row for each rank, with means over the repeats. Accuracies are over the share of the rank."""

    def frame(self, table: Table) -> pd.DataFrame:
        heads = self.heads(table)
        cells = []
        for row in table.rows:
            by_rank: dict[int, list[RankRecord]] = {}
            for record in row.counted:
                for rank in record.ranks:
                    by_rank.setdefault(rank.rank, []).append(rank)
            ends = _texts(row, ENDING)
            for number, ranks in sorted(by_rank.items()):
                means = {label_of(name): _mean(ranks, name) for name in self.metrics}
                cells.append(_with_factors(row, heads, {"rank": str(number), **means, **ends}))
            if not by_rank:
                cells.append(_with_factors(row, heads, {"rank": "", **ends}))
        return pd.DataFrame(cells, dtype=object).fillna("")


def all_layouts() -> dict[str, Layout]:
    """Return the tables of training and those that workloads add, by name."""
    layouts = dict(LAYOUTS)
    for presentation in installed_presentations():
        layouts |= presentation.layouts
    return layouts


def render(results: Results, name: str, *, published: bool = False) -> RenderedTable:
    """A table of the reports, of the runs of a sweep.

    Args:
        results: the runs.
        name: the layout, as after `--by`.
        published: whether the published runs of the same configurations have rows, too.
    """
    layout = all_layouts()[name]
    shown = results.of(layout.select(results.records))
    if results.records and not shown.records:
        return RenderedTable(pd.DataFrame(), [layout.nothing])
    table = make_table(shown, layout.factors)
    if published:
        table = with_published(table)
    frame = layout.frame(table)
    filled = [head for head in frame.columns if (frame[head] != "").any()]
    return RenderedTable(frame[filled], table.notes)


def _several_ranks(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.config.get("world_size", 1) > 1]


def _placed(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs with how many machines their ranks were on, how many were on each, and what backend=auto was."""
    placed = []
    for record in records:
        config = dict(record.config)
        if not config.get("machines"):
            config["machines"] = len({rank.machine for rank in record.ranks}) or 1
            config["ranks_per_machine"] = config["world_size"] // config["machines"]
        if config.get("backend") == "auto" and record.outcome is Outcome.OK:
            config["backend"] = record.backend or None
        placed.append(record.replace(config=config))
    return placed


def _texts(row: Trial, columns: Sequence[Column]) -> dict[str, str]:
    return {column.head: column.text(row) for column in columns}


def _with_factors(row: Trial, names: Sequence[str], cells: dict[str, str]) -> dict[str, str]:
    return factor_cells({name: row.factors.get(name) for name in names}, other_headers=cells) | cells


def _mean(ranks: Sequence[RankRecord], name: str) -> str:
    values = [rank.metrics[name] for rank in ranks if name in rank.metrics]
    if not values:
        return ""
    return format_value(estimate(values, quantity_of(name)), format_of(name))


_TIME_MEMORY_ACCURACY = ("total_s", "epoch_s", *MEMORY, "peak_mem_mb", "test_accuracy")
"""Reports give memory in another unit."""

LAYOUTS: Mapping[str, Layout] = {
    "batch": Layout(factors=("batch_per_rank", "world_size"), metrics=_TIME_MEMORY_ACCURACY),
    "rank": RankLayout(metrics=("total_s", *MEMORY, *MEMORY_KINDS, "train_accuracy", "test_accuracy")),
    "backend": Layout(
        factors=("batch_per_rank", "backend"),
        metrics=_TIME_MEMORY_ACCURACY,
        select=_several_ranks,
        nothing="All runs have one rank, which has no backend.",
    ),
    "memory": Layout(
        factors=("batch_per_rank", "world_size"), metrics=(*EXACT, "device_mem_mib", "host_mem_mib", "peak_mem_mb")
    ),
    "machines": Layout(
        factors=("machines", "ranks_per_machine", "backend"),
        metrics=("total_s", "epoch_s", "images_per_s", "speed_up", "exposed_comm_ms", "link_round_trip_ms",
                 "link_mbit_per_s", "test_accuracy"),
        select=_placed,
    ),
    "quantization": Layout(
        factors=("world_size", "quantization"),
        metrics=("total_s", "epoch_s", "test_accuracy", "int8_test_accuracy", "fp32_checkpoint_bytes",
                 "int8_checkpoint_bytes", "fp32_eager_ms_p50", "fp32_compiled_ms_p50", "int8_compiled_ms_p50"),
    ),
}  # fmt: skip
"""The tables of training by their names after `--by`."""
