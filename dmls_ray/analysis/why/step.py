"""`StepParts`: where the time of an optimizer step goes in the runs of a trial, and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Estimate, estimate, is_above
from dmls_ray.analysis.table.axis_groups import groups_along_axis
from dmls_ray.analysis.table.row import Row

if TYPE_CHECKING:
    from dmls_ray.analysis.table.model import Table

PARTS = {
    "data_wait_ms": "waiting for data",
    "forward_ms": "forward pass",
    "backward_ms": "backward pass",
    "exposed_comm_ms": "communication not overlapped with compute",
    "waiting_ms": "waiting for the slowest rank",
    "optimizer_ms": "optimizer",
    "rest_ms": "rest",
}
"""Part of a step -> its words. `exposed_comm_ms` is that of the rank with the least, and `waiting_ms` what the mean
rank has beyond it."""

COMPUTE = ("forward_ms", "backward_ms", "optimizer_ms")

INPUT_BOUND = 0.25
COMMUNICATION_BOUND = 0.25
"""Shares of a step from which on waiting for data, or communication and waiting for ranks, is what bounds it."""
COMPUTE_BOUND = 0.7
"""Share of a step from which on computing is what bounds it: its arithmetic, or the start of its operations."""
_HALF = 0.5
"""If more of a step than this share grows with the batch, its arithmetic bounds it; if less, what a step takes at any
batch: starting its operations."""
_SLOWER_RANK = 0.05
"""Share of a step by which a rank must be slower than the others to be named."""


@dataclass(frozen=True)
class StepParts:
    """Milliseconds of the parts of a counted step, as means over the runs of a trial."""

    parts: dict[str, float]
    """Part -> milliseconds; they add up to the step. Those that are not known, as forward and backward pass of a
    user-defined function that calls no `backward()`, are 0: their time is in the rest."""

    @property
    def step_ms(self) -> float:
        return sum(self.parts.values())

    def share(self, *names: str) -> float:
        """The share of some parts in the step."""
        return sum(self.parts[name] for name in names) / self.step_ms if self.step_ms else 0.0


def step_parts(row: Row) -> StepParts | None:
    """The parts of a trial's steps; None where no run has them."""
    runs = list(_parts_by_block(row).values())
    if not runs:
        return None
    return StepParts({name: fmean(run[name] for run in runs) for name in PARTS})


def bound_of(row: Row, smaller: Row | None = None, larger: Row | None = None) -> str:
    """What bounds the speed of a trial; empty where its parts are not known, `none` where none dominates.

    Without another batch, or where its steps do not distinguish them, `compute or launch`.

    Args:
        row: the trial.
        smaller: the same trial with the next smaller batch per rank, if there is one.
        larger: the same trial with the next larger batch per rank, if there is one.
    """
    found = step_parts(row)
    if found is None:
        return ""
    if found.share("data_wait_ms") >= INPUT_BOUND:
        return "input"
    if found.share("exposed_comm_ms", "waiting_ms") >= COMMUNICATION_BOUND:
        return "communication"
    if found.share(*COMPUTE) < COMPUTE_BOUND:
        return "none"
    growing = _growing_share(row, smaller or row, larger or row)
    if growing is None:
        return "compute or launch"
    low, high = (growing.centre if end is None else end for end in (growing.low, growing.high))
    return "compute" if low > _HALF else "launch" if high < _HALF else "compute or launch"


def _growing_share(row: Row, smaller: Row, larger: Row) -> Estimate | None:
    """The share of a trial's step that grows with the batch, from the steps with a smaller and a larger one.

    None without two batches in one block.
    """
    if smaller is larger:
        return None
    below, here, above = ({block: sum(parts.values()) for block, parts in _parts_by_block(item).items()}
                          for item in (smaller, row, larger))  # fmt: skip
    blocks = below.keys() & here.keys() & above.keys()
    for item in (smaller, larger):
        blocks &= row.comparisons.common_blocks(row, item, timed=True)
    if not blocks:
        return None
    first, batch, last = (item.factors["batch_per_rank"] for item in (smaller, row, larger))
    growth = {block: (above[block] - below[block]) / (last - first) for block in blocks}
    return estimate([batch * growth[block] / here[block] for block in sorted(blocks)])


_OF_RANK = ("data_wait_ms", "forward_ms", "backward_ms", "optimizer_ms", "rest_ms")
"""What a rank does itself in a step."""


def bounds_of(table: Table) -> dict[str, str]:
    """What bounds each trial of a table, by trial_id, with its other batches to see what a step takes at any."""
    rows = [row for row in table.rows if row.timed]
    found = {row.trial_id: bound_of(row) for row in rows}
    if "batch_per_rank" not in table.varied:
        return found
    batched = [row for row in rows if row.factors["batch_per_rank"]]
    for group in groups_along_axis(batched, "batch_per_rank", table.fixed_batch_field):
        ordered = sorted(group, key=lambda row: int(row.factors["batch_per_rank"]))
        for smaller, row, larger in zip([None, *ordered], ordered, [*ordered[1:], None], strict=False):
            found[row.trial_id] = bound_of(row, smaller, larger)
    return found


def slower_rank(row: Row) -> tuple[int, float] | None:
    """The rank that is slower than the others beyond its own spread over the repeats, and by how many milliseconds.

    Slower in what it does itself: waiting for data, computing and the rest. None if there is no such rank.
    """
    by_rank: dict[int, list[float]] = {}
    for record in row.timed:
        own = {
            rank.rank: sum(rank.metrics.get(name, 0) for name in _OF_RANK)
            for rank in record.ranks if "data_wait_ms" in rank.metrics
        }  # fmt: skip
        for rank, ms in own.items():
            if others := [value for other, value in own.items() if other != rank]:
                by_rank.setdefault(rank, []).append(ms - fmean(others))
    found = step_parts(row)
    if found is None or not by_rank:
        return None
    rank, later = max(by_rank.items(), key=lambda item: fmean(item[1]))
    ms = fmean(later)
    is_known = len(later) >= MIN_REPEATS and is_above(estimate(later), 0)
    return (rank, ms) if is_known and ms >= _SLOWER_RANK * found.step_ms else None


def _parts_by_block(row: Row) -> dict[int, dict[str, float]]:
    """The parts of a step in each block that has them."""
    found = {}
    for record in row.timed:
        known = {name: record.metrics.get(name) for name in PARTS if name != "waiting_ms"}
        if "data_wait_ms" not in record.metrics:
            continue
        parts = {name: value or 0.0 for name, value in known.items()}
        # A rank that is ahead waits inside the timer of its communication.
        exposed = [rank.metrics["exposed_comm_ms"] for rank in record.ranks if "exposed_comm_ms" in rank.metrics]
        found[record.repeat] = parts | {"waiting_ms": fmean(exposed) - min(exposed) if exposed else 0.0}
    return found
