"""Differences between the ranks of a run: stragglers, and ranks that need more memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import SINGLE_LINE, dashed_line, limit_rows, measured_series, trial_labels
from dmls_ray.analysis.memory import MEMORY, memory_metric
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.epoch_and_rank import RankRecord
from dmls_ray.records.model import RunRecord

Value = Callable[[RankRecord], float | None]


def _computed(rank: RankRecord) -> float | None:
    if "forward_ms" not in rank.metrics or "backward_ms" not in rank.metrics:
        return None
    return rank.metrics["forward_ms"] + rank.metrics["backward_ms"]


_VALUES: Mapping[str, tuple[Value, bool]] = {
    "median optimizer step": (lambda rank: rank.metrics.get("step_ms_p50"), True),
    "computation of a pass": (_computed, True),
}
"""Label -> (value of a rank, whether it is a time)."""


def chart(table: Table) -> Chart | None:
    """The figure; None if no counted run has two ranks with a value.

    Each rank is compared with the mean over the ranks of its run, so that trials of different speed are comparable.
    Ranks wait for each other at every step, so a slow rank shows in its computation earlier than in its steps.
    """
    memory = memory_metric(table.rows)
    shown = {**_VALUES} | ({MEMORY[memory]: (lambda rank: rank.metrics.get(memory), False)} if memory else {})
    several = [row for row in table.rows if row.world_size > 1 and row.counted]
    rows, notes = limit_rows(table, several, lambda row: any(by_rank(row, *how) for how in shown.values()))
    if not rows:
        return None
    x = Axis("rank", categories=[str(rank) for rank in range(max(row.world_size for row in rows))])
    ends = [x.categories[0], x.categories[-1]]
    mean = dashed_line("mean over ranks", ends, [0.0, 0.0])
    panels = []
    for label, (value, is_time) in shown.items():
        series: list[Series] = []
        for name, row in zip(trial_labels(table, rows), rows, strict=True):
            points = [(str(rank), row, values) for rank, values in by_rank(row, value, is_time).items()]
            series += measured_series(name or SINGLE_LINE, points, quantity="value")
        if series:
            panels.append(Panel(x=x, y=Axis(f"{label} (% above mean over ranks)"), series=[*series, mean]))
    return Chart(name="rank_spread", title="Spread over ranks", panels=panels, notes=notes)


def by_rank(row: Trial, value: Value, is_time: bool) -> Mapping[int, Mapping[int, float]]:
    """rank -> block -> % above the mean over the ranks of the run, for runs with at least two values."""
    by_block: dict[int, dict[int, float]] = {}
    for record in row.timed if is_time else row.counted:
        for rank, above in _above_mean(record, value).items():
            by_block.setdefault(rank, {})[record.repeat] = above
    return dict(sorted(by_block.items()))


def _above_mean(record: RunRecord, value: Value) -> Mapping[int, float]:
    values = {rank.rank: number for rank in record.ranks if (number := value(rank)) is not None}
    mean = statistics.fmean(values.values()) if len(values) > 1 else 0.0
    return {rank: 100 * (number - mean) / mean for rank, number in values.items()} if mean else {}
