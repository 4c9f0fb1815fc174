"""Where the time of an optimizer step goes in each trial, as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import Point, bar_groups, run_ids, series_of
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.steps import PARTS, bounds_of, slower_rank, step_parts
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.analysis.words import join_names

_MOST_LINES = 4
"""Lines of trials that have a panel."""
_BOUNDS = {
    "input": "waiting for data",
    "communication": "communication and waiting for other ranks",
    "launch": "what a step takes at any batch (launch-bound)",
    "compute": "computing",
    "compute or launch": "computing, or what a step takes at any batch (not distinguished)",
}


def chart(table: Table) -> Chart | None:
    """The figure; None if fewer than two trials have the parts of their steps."""
    measured = {row.trial_id: parts for row in table.rows if (parts := step_parts(row))}
    rows = [row for row in table.rows if row.trial_id in measured]
    if len(rows) < 2:
        return None
    taken = [name for name in PARTS if any(parts[name] > 0 for parts in measured.values())]
    y = Axis("time of an optimizer step (ms)", from_zero=True)
    groups, notes = bar_groups(table, rows, _MOST_LINES)
    panels = []
    for title, x, shown in groups:
        bars = _bars(shown, x, taken, measured)
        panels.append(Panel(x=x, y=y, series=bars, title=title, stacked=True))
    texts = (*notes, *_verdicts(table, rows), *_late(rows))
    return Chart(name="step_parts", title="Where an optimizer step goes", panels=panels, notes=texts)


def _bars(
    rows: Sequence[Trial], x: Axis, parts: Sequence[str], measured: Mapping[str, Mapping[str, float]]
) -> list[Series]:
    """A series for each part."""
    bars: list[Series] = []
    for name in parts:
        points = []
        for category, row in zip(x.categories, rows, strict=True):
            height = measured[row.trial_id][name]
            points.append(Point(category, height, runs=run_ids(row.timed), text=f"n={len(row.timed)}"))
        bars += series_of(PARTS[name], points, kind="bar")
    return bars


def _verdicts(table: Table, rows: Sequence[Trial]) -> list[str]:
    """What bounds which trials."""
    bounds = bounds_of(table.rows, table.varied, table.fixed_batch_field)
    by_bound: dict[str, list[str]] = {}
    for row in rows:
        by_bound.setdefault(bounds[row.trial_id], []).append(describe_configuration(row.factors))
    return [
        f"Bound by {words}: {join_names(by_bound[bound])}." for bound, words in _BOUNDS.items() if bound in by_bound
    ]


def _late(rows: Sequence[Trial]) -> list[str]:
    found = [(row, late) for row in rows if (late := slower_rank(row)) is not None]
    names = [f"rank {rank} by {ms:.2f} ms with {describe_configuration(row.factors)}" for row, (rank, ms) in found]
    return [f"Slower than the other ranks, beyond its spread: {join_names(names)}."] if names else []
