"""`StepParts`: where the time of an optimizer step goes in the runs of a trial, and what bounds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from dmls_ray.analysis.stats.intervals import MIN_REPEATS, estimate, is_above
from dmls_ray.analysis.table.axis_groups import groups_along_axis
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord

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
"""Share of a step from which on computing is what bounds it, if the next larger batch takes longer in proportion."""
LAUNCH_BOUND = 1.25
"""If a step with twice the batch takes less than this factor longer, what a step takes at any size bounds it: starting
its operations."""
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
    runs = list(_parts_of_runs(row.timed))
    if not runs:
        return None
    return StepParts({name: fmean(run[name] for run in runs) for name in PARTS})


def bound_of(row: Row, larger: Row | None = None) -> str:
    """What bounds the speed of a trial, in a word; empty where its parts are not known, `none` where none dominates.

    Args:
        row: the trial.
        larger: the same trial with twice the batch per rank, if there is one.
    """
    found = step_parts(row)
    if found is None:
        return ""
    if found.share("data_wait_ms") >= INPUT_BOUND:
        return "input"
    if found.share("exposed_comm_ms", "waiting_ms") >= COMMUNICATION_BOUND:
        return "communication"
    more = None if larger is None else step_parts(larger)
    if more is not None and more.step_ms < LAUNCH_BOUND * found.step_ms:
        return "launch"
    return "compute" if found.share(*COMPUTE) >= COMPUTE_BOUND else "none"


def bounds_of(table: Table) -> dict[str, str]:
    """What bounds each trial of a table, by trial_id, with its other batches to see what a step takes at any."""
    rows = [row for row in table.rows if row.timed]
    larger = {
        row.trial_id: other
        for group in groups_along_axis(rows, "batch_per_rank", table.fixed_batch_field)
        if "batch_per_rank" in table.varied
        for row in group
        for other in group
        if row.factors["batch_per_rank"] and other.factors["batch_per_rank"] == 2 * row.factors["batch_per_rank"]
    }
    return {row.trial_id: bound_of(row, larger.get(row.trial_id)) for row in rows}


def slower_rank(row: Row) -> tuple[int, float] | None:
    """The rank that is slower than the others beyond its own spread over the repeats, and by how many milliseconds.

    Slower in what it does itself: waiting for data, computing and the rest. None if there is no such rank.
    """
    by_rank: dict[int, list[float]] = {}
    for record in row.timed:
        own = {
            rank.rank: (rank.data_wait_ms or 0) + (rank.forward_ms or 0) + (rank.backward_ms or 0)
            + (rank.optimizer_ms or 0) + (rank.rest_ms or 0)
            for rank in record.ranks if rank.data_wait_ms is not None
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


def _parts_of_runs(records: Iterable[RunRecord]) -> Iterator[dict[str, float]]:
    for record in records:
        known = {name: getattr(record, name) for name in PARTS if name != "waiting_ms"}
        if record.data_wait_ms is None:
            continue
        parts = {name: value or 0.0 for name, value in known.items()}
        # A rank that is ahead waits inside the timer of its communication.
        exposed = [rank.exposed_comm_ms for rank in record.ranks if rank.exposed_comm_ms is not None]
        yield parts | {"waiting_ms": fmean(exposed) - min(exposed) if exposed else 0.0}
