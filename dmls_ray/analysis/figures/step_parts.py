"""Where the time of an optimizer step goes in each trial, as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from dmls_ray.analysis.figures.chart import Axis, Chart
from dmls_ray.analysis.figures.series import stacked_panels
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.steps import PARTS, bounds_of, step_parts
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
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
    measured = {row.trial_id: known for row in table.rows if (known := step_parts(row))}
    rows = [row for row in table.rows if row.trial_id in measured]
    if len(rows) < 2:
        return None
    parts = {}
    for name, words in PARTS.items():
        if any(item[name] > 0 for item in measured.values()):
            parts[words] = partial(_part, measured, name)
    y = Axis("time of an optimizer step (ms)", from_zero=True)
    panels, notes = stacked_panels(table, rows, y, parts, _MOST_LINES)
    notes += _on_bounds(table, rows)
    return Chart(name="step_parts", title="Where an optimizer step goes", panels=panels, notes=notes)


def _part(measured: Mapping[str, Mapping[str, float]], name: str, row: Trial) -> float:
    return measured[row.trial_id][name]


def _on_bounds(table: Table, rows: Sequence[Trial]) -> list[str]:
    """What bounds which trials."""
    bounds = bounds_of(table.rows, table.varied, table.fixed_batch_field)
    notes = []
    for bound, words in _BOUNDS.items():
        bounded = [describe_configuration(row.factors) for row in rows if bounds[row.trial_id] == bound]
        if bounded:
            notes.append(f"Bound by {words}: {join_names(bounded)}.")
    return notes
