"""Exposed communication as a fraction of a pass, and the fraction of communication that computation hides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Axis, Chart, Panel
from dmls_ray.analysis.figures.drawn_trials import limit_items
from dmls_ray.analysis.figures.series import Plotted, batch_axis, line_panel, lines_along, trials_as_categories
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.epoch_and_rank import RankRecord

Share = Callable[[Sequence[RankRecord]], float]


def exposed_share(ranks: Sequence[RankRecord]) -> float:
    """Exposed communication divided by forward pass, backward pass and exposed communication, of `_least_waiting`."""
    metrics = _least_waiting(ranks).metrics
    exposed = metrics["exposed_comm_ms"]
    return exposed / (exposed + metrics.get("forward_ms", 0.0) + metrics.get("backward_ms", 0.0))


def hidden_share(ranks: Sequence[RankRecord]) -> float:
    """Communication that overlaps with the backward pass, as a fraction of all communication, of `_least_waiting`."""
    metrics = _least_waiting(ranks).metrics
    return metrics.get("overlap_ms", 0.0) / metrics["comm_ms"]


def _least_waiting(ranks: Sequence[RankRecord]) -> RankRecord:
    """The rank with the least exposed communication: in that of the others is their wait for slower ranks."""
    return min(ranks, key=lambda rank: rank.metrics["exposed_comm_ms"])


def by_block(row: Trial, share: Share) -> Mapping[int, float]:
    """A share by block, over the timed runs whose ranks have DDP's timers."""
    shares = {}
    for record in row.timed:
        ranks = [rank for rank in record.ranks if "exposed_comm_ms" in rank.metrics and rank.metrics.get("comm_ms")]
        if ranks:
            shares[record.repeat] = share(ranks)
    return shares


_PLOTTED = [
    Plotted(Axis(label, from_zero=True), partial(by_block, share=share), quantity="share")
    for label, share in (
        ("exposed communication (fraction of a pass)", exposed_share),
        ("hidden communication (fraction of communication)", hidden_share),
    )
]


def chart(table: Table) -> Chart | None:
    """The figure; None if fewer than two trials have DDP's timers, as at world size 1.

    The x axis is the first of world_size, the batch and the varied fields along which two trials can be joined, but
    none that was changed in one trial alone. Without one, each trial is a category.
    """
    rows = [row for row in table.rows if by_block(row, exposed_share)]
    if len(rows) < 2:
        return None
    for field in ("world_size", batch_axis(table), *table.varied):
        x, lines = lines_along(table, rows, field)
        if lines and not x.categories and field not in table.changed:
            lines, notes = limit_items(lines, "lines")
            break
    else:
        shown, notes = limit_items(rows, "trials", MAX_CATEGORIES)
        x, line = trials_as_categories(table, shown)
        lines = [line]
    panels: list[Panel] = []
    for plotted in _PLOTTED:
        panels += line_panel(plotted, x, lines)
    return Chart(name="communication", title="Communication of gradients", panels=panels, notes=notes)
