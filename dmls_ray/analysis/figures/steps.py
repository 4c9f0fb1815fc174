"""Where the time of optimizer steps goes: the parts of a step, and how much communication computation hides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel
from dmls_ray.analysis.figures.series import (
    Plotted,
    batch_axis,
    line_panel,
    lines_or_categories,
    stacked_panels,
)
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.steps import PARTS, bounds_of, step_parts
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import join_names
from dmls_ray.records.epoch_and_rank import RankRecord

_BOUNDS = {
    "input": "waiting for data",
    "communication": "communication and waiting for other ranks",
    "launch": "what a step takes at any batch (launch-bound)",
    "compute": "computing",
    "compute or launch": "computing, or what a step takes at any batch (not distinguished)",
}


def step_parts_chart(table: Table) -> Chart | None:
    """The parts of an optimizer step in each trial, as stacked bars; None if fewer than two trials have them."""
    measured = {row.trial_id: known for row in table.rows if (known := step_parts(row))}
    rows = [row for row in table.rows if row.trial_id in measured]
    if len(rows) < 2:
        return None
    parts = {}
    for name, words in PARTS.items():
        if any(item[name] > 0 for item in measured.values()):
            parts[words] = lambda row, name=name: measured[row.trial_id][name]
    y = Axis("time of an optimizer step (ms)", from_zero=True)
    panels, notes = stacked_panels(table, rows, y, parts)
    bounds = bounds_of(table.rows, table.varied, table.fixed_batch_field)
    for bound, words in _BOUNDS.items():
        bounded = [describe_configuration(row.factors) for row in rows if bounds[row.trial_id] == bound]
        if bounded:
            notes.append(f"Bound by {words}: {join_names(bounded)}.")
    return Chart(name="step_parts", title="Where an optimizer step goes", panels=panels, notes=notes)


def communication_chart(table: Table) -> Chart | None:
    """Exposed communication as a fraction of a pass, and the fraction of communication that computation hides.

    None if fewer than two trials have DDP's timers, as at world size 1. The x axis is the first of world_size, the
    batch and the varied fields along which two trials can be joined, but none that was changed in one trial alone.
    """
    rows = [row for row in table.rows if _by_block(row, _exposed)]
    if len(rows) < 2:
        return None
    fields = ["world_size", batch_axis(table), *table.varied]
    fields = [field for field in fields if field not in table.changed]
    x, lines, notes = lines_or_categories(table, rows, fields)
    panels: list[Panel] = []
    for label, share in (
        ("exposed communication (fraction of a pass)", _exposed),
        ("hidden communication (fraction of communication)", _hidden),
    ):
        plotted = Plotted(Axis(label, from_zero=True), partial(_by_block, share=share), quantity="share")
        panels += line_panel(plotted, x, lines)
    return Chart(name="communication", title="Communication of gradients", panels=panels, notes=notes)


def _exposed(metrics: Mapping[str, float]) -> float:
    exposed = metrics["exposed_comm_ms"]
    return exposed / (exposed + metrics.get("forward_ms", 0.0) + metrics.get("backward_ms", 0.0))


def _hidden(metrics: Mapping[str, float]) -> float:
    return metrics.get("overlap_ms", 0.0) / metrics["comm_ms"]


def _by_block(row: Trial, share: Callable[[Mapping[str, float]], float]) -> Mapping[int, float]:
    """A share by block, over the timed runs whose ranks have DDP's timers.

    It is that of the rank with the least exposed communication: in that of the others is their wait for slower ranks.
    """
    shares = {}
    for record in row.timed:
        ranks = [rank.metrics for rank in record.ranks if _has_timers(rank)]
        if ranks:
            shares[record.repeat] = share(min(ranks, key=lambda metrics: metrics["exposed_comm_ms"]))
    return shares


def _has_timers(rank: RankRecord) -> bool:
    return "exposed_comm_ms" in rank.metrics and bool(rank.metrics.get("comm_ms"))
