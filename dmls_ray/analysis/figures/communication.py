"""Exposed communication as a fraction of a pass, and the fraction of communication that computation hides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import (
    SINGLE_LINE,
    default_axis,
    factor_axis,
    limit_items,
    line_series,
    lines_along,
    measured_series,
    trial_axis,
)
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.epoch_and_rank import RankRecord

Share = Callable[[Sequence[RankRecord]], float]


def exposed_share(ranks: Sequence[RankRecord]) -> float:
    """Exposed communication divided by forward pass, backward pass and exposed communication, of `_least_waiting`."""
    rank = _least_waiting(ranks)
    metrics = rank.metrics
    exposed = metrics["exposed_comm_ms"]
    return exposed / (exposed + metrics.get("forward_ms", 0.0) + metrics.get("backward_ms", 0.0))


def hidden_share(ranks: Sequence[RankRecord]) -> float:
    """Communication that overlaps with the backward pass, as a fraction of all communication, of `_least_waiting`."""
    rank = _least_waiting(ranks)
    return rank.metrics.get("overlap_ms", 0.0) / rank.metrics["comm_ms"]


def _least_waiting(ranks: Sequence[RankRecord]) -> RankRecord:
    """The rank with the least exposed communication: in that of the others is their wait for slower ranks."""
    return min(ranks, key=lambda rank: rank.metrics["exposed_comm_ms"])


_SHARES: dict[str, Share] = {
    "exposed communication (fraction of a pass)": exposed_share,
    "hidden communication (fraction of communication)": hidden_share,
}


def chart(table: Table) -> Chart | None:
    """The figure; None if fewer than two trials have DDP's timers, as at world size 1.

    The x axis is `default_axis`; without a numeric axis, each trial is a category.
    """
    rows = [row for row in table.rows if "exposed_comm_ms" in row.estimates and by_block(row, exposed_share)]
    if len(rows) < 2:
        return None
    if axis := default_axis(table, rows):
        lines, notes = limit_items(lines_along(table, rows, axis), "lines")
        x = factor_axis(lines)
    else:
        shown, notes = limit_items(rows, "trials", MAX_CATEGORIES)
        x, names = trial_axis(table, shown)

    panels = []
    for label, share in _SHARES.items():
        shares = partial(by_block, share=share)
        series: list[Series] = []
        if axis:
            for line in lines:
                series += line_series(line, shares, quantity="share")
        else:
            points = [(name, row, shares(row)) for name, row in zip(names, shown, strict=True)]
            series = measured_series(SINGLE_LINE, points, quantity="share")
        panels.append(Panel(x=x, y=Axis(label, from_zero=True), series=series))
    return Chart(name="communication", title="Communication of gradients", panels=panels, notes=notes)


def by_block(row: Trial, share: Share) -> Mapping[int, float]:
    """A share by block, over the timed runs whose ranks have DDP's timers."""
    ranks_by_block = {
        record.repeat: [
            rank for rank in record.ranks if "exposed_comm_ms" in rank.metrics and rank.metrics.get("comm_ms")
        ]
        for record in row.timed
    }
    return {block: share(ranks) for block, ranks in ranks_by_block.items() if ranks}
