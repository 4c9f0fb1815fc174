"""What a sweep did not try and the runs say would be worth it, each with the flag that does it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from dmls_ray.analysis.advise.objective import Candidate, Objective
from dmls_ray.analysis.presentation import presentation_of
from dmls_ray.analysis.results import factors_of
from dmls_ray.analysis.stats.formatting import ACCURACY, RATIO, format_interval
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, difference
from dmls_ray.analysis.stats.paired import paired, repeats_to_tell
from dmls_ray.analysis.summary.phrases import count_noun, describe_configuration
from dmls_ray.analysis.table.grouping import all_groups_along_axis
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.outcome import Outcome

MOST_REPEATS = 30
"""More than these are not advised: a smaller difference is of no use."""

_HARDLY = 0.02
"""A ratio of times, memory or costs below 1.02 is of no use to know."""


def suggestions_for(
    table: Table,
    objective: Objective,
    best: Candidate | None,
    able: Sequence[Candidate],
    indistinguishable: Sequence[Candidate],
    *,
    level: float,
) -> list[str]:
    """A line for each thing that is worth trying; none that does not follow from the runs.

    Args:
        table: the sweep's table.
        objective: what for.
        best: the configuration that looks best.
        able: all that can be chosen, the best first.
        indistinguishable: those that are indistinguishable from the best.
        level: of the intervals by which they were compared.
    """
    lines = []
    if best is not None:
        # Times of runs that did not get to the target are too short to go by.
        if best.is_whole:
            lines += [_beyond(table, objective, best, able, axis) for axis in table.varied]
            lines.append(_more_repeats(objective, best, indistinguishable, level))
        lines.append(_more_ranks(table, objective, best))
    lines += [_scaled_lr(table, objective), *_smaller(table)]
    return [line for line in lines if line]


def _beyond(table: Table, objective: Objective, best: Candidate, able: Sequence[Candidate], axis: str) -> str:
    """The next value of an axis at whose end the best one lies, where it is better than its neighbour there."""
    derived = {"global_batch": "batch_per_rank", "batch_per_rank": "global_batch"}.get(table.fixed_batch_field)
    passes = objective.measure in ("images_per_s", "peak_mem_mib", "total_s")
    spec = best.row.workload.specs().get(axis)
    is_explored = spec is None or spec.setting.is_explored
    if not is_explored or axis == derived or (axis == "epochs" and passes):
        return ""
    group = next(
        (group for group in all_groups_along_axis(table.rows, axis, table.fixed_batch_field) if best.row in group), []
    )
    values = [row.factors[axis] for row in group]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return ""
    here = best.row.factors[axis]
    measured = [item for item in able if item.row in group and item is not best]
    if not measured or min(values) < here < max(values):
        return ""
    near = min(measured, key=lambda item: abs(item.row.factors[axis] - here))
    worse = objective.compared(near, best)
    if worse is None or worse.centre <= 0 or (worse.low is not None and worse.low <= 0):
        return ""
    value = _next(here, near.row.factors[axis], best.row, axis)
    if value is None:
        return ""
    end = "largest" if here == max(values) else "least"
    return (
        f"--{_flag(axis)} {_typed(value)}: {here} is the {end} that was tried, with "
        f"{objective.describe(objective.inverse(worse))} "
        f"{'of' if objective.as_ratio else 'against'} {near.row.factors[axis]}."
    )


def _next(here: float, near: float, row: Row, axis: str) -> int | float | None:
    """A step further on an axis: twice or half of a whole number, else as far as the last step; None if there is none
    that can be run.
    """
    if here <= 0:
        return None
    step = here / near if near > 0 else 2.0
    value: int | float
    if isinstance(here, int):
        value = here * 2 if here > near else here // 2
    else:
        value = float(f"{here * min(max(step, 0.1), 10.0):.3g}")
    if axis == "world_size":
        value = min(value, _capacity(row) or value)
    if value <= 0 or value == here or (value - here) * (here - near) < 0:
        return None
    return value if presentation_of(row.workload).can_run(row, axis, value) else None


def _capacity(row: Row) -> int | None:
    """How many ranks the machine of a trial has room for; None where that is not known."""
    rank_limits = set()
    for record in row.counted:
        cores = record.machine.get("cores")
        if record.device.startswith("cuda"):
            rank_limits.add(len(record.machine.get("gpus") or []))
        elif cores:
            rank_limits.add(cores // record.config.get("threads_per_rank", 1))
    return min(rank_limits) if rank_limits else None


def _more_ranks(table: Table, objective: Objective, best: Candidate) -> str:
    """World sizes that were not tried and have room, where none but one was."""
    tried = {row.world_size for row in table.rows}
    room = _capacity(best.row)
    if not objective.ranks_may_help or len(tried) > 1 or room is None or room <= max(tried):
        return ""
    if not table.presentation.scales_world_size:
        return ""
    sizes = sorted({min(2**power, room) for power in range(math.ceil(math.log2(room)) + 1)} | tried)
    return (
        f"--world-size {' '.join(map(str, sizes))}: {count_noun(tried.pop(), 'rank')} alone was tried, and the machine "
        f"has room for {room}."
    )


def _more_repeats(objective: Objective, best: Candidate, indistinguishable: Sequence[Candidate], level: float) -> str:
    """How many repeats would distinguish the best one from the indistinguishable ones."""
    if not indistinguishable:
        return ""
    known = [paired(*objective.paired_samples(other, best)) for other in indistinguishable]
    if min(map(len, known)) < MIN_REPEATS:
        return f"--repeats 5: with n={min(map(len, known))} the best ones are indistinguishable."
    # What hardly differs is not worth repeats, however few would show it.
    needed = [
        None if objective.as_ratio and abs(fmean(worse)) < _HARDLY else repeats_to_tell(worse, level, MOST_REPEATS)
        for worse in known
    ]
    enough = [count for count in needed if count is not None]
    if not enough:
        return ""
    if len(enough) == len(indistinguishable):
        of_them, rest = "the other one" if len(indistinguishable) == 1 else f"all {len(indistinguishable)} others", ""
    else:
        of_them, rest = f"{len(enough)} of {len(indistinguishable)} others", "; the rest differ too little"
    return (
        f"--repeats {max(*enough, len(best.samples) + 1)}: would distinguish the best one from {of_them} 4 times in 5, "
        f"if the differences and spreads seen here are the true ones{rest}."
    )


def _scaled_lr(table: Table, objective: Objective) -> str:
    """A learning rate that follows the batch, where accuracy falls with the batch at one learning rate."""
    if (
        not table.presentation.tunes_training
        or not objective.follows_learning_rate
        or {"lr", "lr_scaling", "epochs"} & set(table.varied)
    ):
        return ""
    if any(record.config.get("lr_scaling", "none") != "none" for row in table.rows for record in row.records):
        return ""
    rows = [row for row in table.rows if row.median_of("test_accuracy") is not None and "global_batch" in row.factors]
    groups = [sorted(group, key=lambda row: int(row.factors["global_batch"]))
              for group in all_groups_along_axis(rows, table.fixed_batch_field, table.fixed_batch_field)]  # fmt: skip
    for group in sorted(groups, key=len, reverse=True):
        small, large = group[0], group[-1]
        less = difference(small.by_block("test_accuracy"), large.by_block("test_accuracy"))
        faster = large.speed_against(small)
        if less and faster and less.low is not None and less.low > 0 and faster.verdict == "faster":
            base = small.factors["global_batch"]
            return (
                f"--lr-scaling none sqrt linear --lr-base-batch {base}: from global_batch {base} to "
                f"{large.factors['global_batch']} training is {format_interval(faster.ratio, RATIO)} "
                "times as fast, and test "
                f"accuracy falls by {format_interval(less, ACCURACY)} at one learning rate and equal "
                "epochs."
            )
    return ""


def _smaller(table: Table) -> list[str]:
    """The same global batch in less memory, for what ran out of it."""
    if not table.presentation.tunes_training:
        return []
    known = {str(sorted(factors_of(row.records[0]).items(), key=str)) for row in table.rows}
    lines = []
    for row in table.rows:
        factors = factors_of(row.records[0])
        batch, passes = factors.get("batch_per_rank"), factors.get("accum_steps", 1)
        if not batch or batch % 2 or any(item.outcome is not Outcome.OOM for item in row.records):
            continue
        other = {**factors, "batch_per_rank": batch // 2, "accum_steps": passes * 2}
        if str(sorted(other.items(), key=str)) not in known and table.presentation.can_run(
            row, "accum_steps", passes * 2
        ):
            lines.append(
                f"--batch-per-rank {batch // 2} --accum-steps {passes * 2}: the global_batch of "
                f"{describe_configuration(row.factors)}, which ran out of memory, in smaller passes."
            )
    return lines[:3]


def _flag(axis: str) -> str:
    return axis.replace("_", "-")


def _typed(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
