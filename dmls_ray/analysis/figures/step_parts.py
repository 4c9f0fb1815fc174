"""Where the time of an optimizer step goes in each trial, as stacked bars."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import limit_items, trial_axis
from dmls_ray.analysis.summary.phrases import describe_configuration, join_names
from dmls_ray.analysis.table.axis_groups import groups_along_axis
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.analysis.why.step import PARTS, bound_of, slower_rank, step_parts

_BOUNDS = {
    "input": "waiting for data",
    "communication": "communication and waiting for other ranks",
    "launch": "what a step takes at any batch (launch-bound)",
    "compute": "computing",
}


def chart(table: Table) -> Chart | None:
    """The figure; None if fewer than two trials have the parts of their steps."""
    rows, notes = limit_items([row for row in table.rows if step_parts(row)], "trials", MAX_CATEGORIES)
    if len(rows) < 2:
        return None
    x, labels = trial_axis(table, rows)
    series = [item for name, words in PARTS.items() if (item := _part(name, words, rows, labels)) is not None]
    y = Axis("time of an optimizer step (ms)", from_zero=True)
    panel = Panel(x=x, y=y, series=series, stacked=True)
    texts = (*notes, *_verdicts(table, rows), *_late(rows))
    return Chart(name="step_parts", title="Where an optimizer step goes", panels=[panel], notes=texts)


def _part(name: str, words: str, rows: Sequence[Row], labels: Sequence[str]) -> Series | None:
    found = [(label, row, parts.parts[name]) for label, row in zip(labels, rows, strict=True)
             if (parts := step_parts(row)) is not None]  # fmt: skip
    if not any(ms > 0 for _, _, ms in found):
        return None
    return Series(
        name=words, kind="bar", x=[label for label, _, _ in found], y=[ms for _, _, ms in found],
        runs=[tuple(record.run_id for record in row.timed) for _, row, _ in found],
        texts=[f"n={len(row.timed)}" for _, row, _ in found],
    )  # fmt: skip


def _verdicts(table: Table, rows: Sequence[Row]) -> list[str]:
    """What bounds which trials."""
    larger = {
        row.trial_id: other
        for group in groups_along_axis(rows, "batch_per_rank", table.fixed_batch_field)
        if "batch_per_rank" in table.varied
        for row in group
        for other in group
        if other.factors["batch_per_rank"] == 2 * row.factors["batch_per_rank"]
    }
    by_bound: dict[str, list[str]] = {}
    for row in rows:
        by_bound.setdefault(bound_of(row, larger.get(row.trial_id)), []).append(describe_configuration(row.factors))
    return [
        f"Bound by {words}: {join_names(by_bound[bound])}." for bound, words in _BOUNDS.items() if bound in by_bound
    ]


def _late(rows: Sequence[Row]) -> list[str]:
    found = [(row, late) for row in rows if (late := slower_rank(row)) is not None]
    names = [f"rank {rank} by {ms:.2f} ms with {describe_configuration(row.factors)}" for row, (rank, ms) in found]
    return [f"Slower than the other ranks, beyond its spread: {join_names(names)}."] if names else []
