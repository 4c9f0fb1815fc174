"""Where the time of an optimizer step goes in the runs of a trial, what bounds it, and how two trials differ in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Estimate, estimate, is_above
from dmls_ray.analysis.trials.groups import groups_along_axis
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.records.epoch_and_rank import RankRecord
from dmls_ray.records.model import RunRecord

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


def bounds_of(rows: Sequence[Row], varied: Collection[str], fixed_batch_field: str) -> dict[str, str]:
    """What bounds each trial of a sweep, by trial_id, with its other batches to see what a step takes at any.

    Args:
        rows: the trials.
        varied: the fields that vary.
        fixed_batch_field: the batch that stays where the number of ranks changes.
    """
    timed = [row for row in rows if row.timed]
    found = {row.trial_id: bound_of(row) for row in timed}
    if "batch_per_rank" not in varied:
        return found
    batched = [row for row in timed if row.factors["batch_per_rank"]]
    for group in groups_along_axis(batched, "batch_per_rank", fixed_batch_field):
        ordered = sorted(group, key=lambda row: int(row.factors["batch_per_rank"]))
        for smaller, row, larger in zip([None, *ordered], ordered, [*ordered[1:], None], strict=False):
            found[row.trial_id] = bound_of(row, smaller, larger)
    return found


@dataclass(frozen=True)
class StepChange:
    """How the steps of two trials differ, in milliseconds."""

    step_ms: float
    base_ms: float
    changes: Mapping[str, float]
    """Part of a step -> by how much it is longer; they add up to the difference of the steps."""
    samples: float
    """How many times the samples of the other trial a rank has in a step."""


def step_change(row: Row, base: Row) -> StepChange | None:
    """Where the difference between the steps of two trials goes.

    None where a part is not known, or no block has both on one machine and device with the same versions.

    Args:
        row: a trial.
        base: the one that it is compared with.
    """
    after, before = step_parts(row), step_parts(base)
    if after is None or before is None or not row.comparisons.common_blocks(row, base, timed=True):
        return None
    if not after.parts["forward_ms"]:
        return None  # of a user-defined function, the parts are not known
    changes = {name: after.parts[name] - before.parts[name] for name in PARTS}
    samples = _samples_of_rank(row) / _samples_of_rank(base)
    return StepChange(after.step_ms, before.step_ms, changes, samples)


def _samples_of_rank(row: Row) -> float:
    config = row.records[0].config
    return float(config.get("batch_per_rank") or 1) * float(config.get("accum_steps") or 1)


def slower_rank(row: Row) -> tuple[int, float] | None:
    """The rank that is slower than the others beyond its own spread over the repeats, and by how many milliseconds.

    Slower in what it does itself: waiting for data, computing and the rest. None if there is no such rank.
    """
    by_rank: dict[int, list[float]] = {}
    for record in row.timed:
        spent = {rank.rank: _spent_ms(rank) for rank in record.ranks if "data_wait_ms" in rank.metrics}
        for rank, ms in spent.items():
            others = [value for other, value in spent.items() if other != rank]
            if others:
                by_rank.setdefault(rank, []).append(ms - fmean(others))
    found = step_parts(row)
    if found is None or not by_rank:
        return None
    rank, later = max(by_rank.items(), key=lambda item: fmean(item[1]))
    ms = fmean(later)
    is_known = len(later) >= MIN_REPEATS and is_above(estimate(later), 0)
    return (rank, ms) if is_known and ms >= _SLOWER_RANK * found.step_ms else None


def _spent_ms(rank: RankRecord) -> float:
    return sum(rank.metrics.get(name, 0.0) for name in _OF_RANK)


def _parts_by_block(row: Row) -> dict[int, dict[str, float]]:
    """The parts of a step in each block that has them."""
    return {record.repeat: _parts(record) for record in row.timed if "data_wait_ms" in record.metrics}


def _parts(record: RunRecord) -> dict[str, float]:
    parts = {name: record.metrics.get(name, 0.0) for name in PARTS if name != "waiting_ms"}
    # A rank that is ahead waits inside the timer of its communication.
    exposed = [rank.metrics["exposed_comm_ms"] for rank in record.ranks if "exposed_comm_ms" in rank.metrics]
    parts["waiting_ms"] = fmean(exposed) - min(exposed) if exposed else 0.0
    return parts
