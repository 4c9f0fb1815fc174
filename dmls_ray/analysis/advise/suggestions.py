"""Configurations that a sweep did not try and that its runs suggest, each with the flag to give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from dmls_ray.analysis.advise.objective import Candidate, Objective
from dmls_ray.analysis.findings.questions import questions_of_rows
from dmls_ray.analysis.memory import MEMORY
from dmls_ray.analysis.metrics import resolution_of
from dmls_ray.analysis.results import factors_of
from dmls_ray.analysis.stats.block_model import BlockModel
from dmls_ray.analysis.stats.formatting import ACCURACY, GENERIC, RATIO, format_interval
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, is_above
from dmls_ray.analysis.stats.power import repeats_to_tell
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.groups import all_groups_along_axis
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.analysis.words import count_noun
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
    model: BlockModel,
) -> list[str]:
    """A line for each thing that is worth trying; none that does not follow from the runs.

    Args:
        table: the sweep's table.
        objective: what the configurations are compared by.
        best: the configuration that looks best.
        able: the configurations that can be chosen, the best first.
        indistinguishable: the configurations that are indistinguishable from the best.
        model: how they compare.
    """
    lines = []
    if best is not None:
        # Times of runs that did not get to the target are too short to go by.
        if best.is_whole:
            lines += [_beyond(table, objective, best, able, axis, model) for axis in table.varied]
            lines.append(_more_repeats(objective, best, indistinguishable, model))
        lines.append(_more_ranks(table, objective, best))
    lines += [_scaled_lr(table, objective), *_smaller(table)]
    return [line for line in lines if line]


def _beyond(
    table: Table, objective: Objective, best: Candidate, able: Sequence[Candidate], axis: str, model: BlockModel
) -> str:
    """The next value of an axis, if the best configuration is at an end of the axis and better than its neighbour."""
    derived = {"global_batch": "batch_per_rank", "batch_per_rank": "global_batch"}.get(table.fixed_batch_field)
    is_work = axis == "epochs" and objective.measure in ("images_per_s", "total_s", *MEMORY)
    spec = best.row.workload.specs().get(axis)
    if axis == derived or is_work or (spec is not None and not spec.setting.is_explored):
        return ""
    groups = all_groups_along_axis(table.rows, axis, table.fixed_batch_field)
    group = next((group for group in groups if best.row in group), [])
    values = [row.factors[axis] for row in group]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return ""
    here = best.row.factors[axis]
    measured = [item for item in able if item.row in group and item is not best]
    if not measured or min(values) < here < max(values):
        return ""
    neighbour = min(measured, key=lambda item: abs(item.row.factors[axis] - here))
    near, worse = neighbour.row.factors[axis], objective.compared(neighbour, best, model)
    if worse is None or worse.centre <= 0 or (worse.low is not None and worse.low <= 0):
        return ""
    value = _next(here, near, best.row, axis)
    if value is None:
        return ""
    # A function of the user may have flags for its fields, or take them by --set.
    name = axis if spec is None else f"--{axis.replace('_', '-')}"
    return (
        f"{name} {value if isinstance(value, int) else f'{value:g}'}: {here} is the "
        f"{'largest' if here == max(values) else 'least'} that was tried, with {objective.describe_advantage(worse)} "
        f"{'against' if objective.is_learned else 'of'} {near}."
    )


def _next(here: float, near: float, row: Row, axis: str) -> int | float | None:
    """A step further on an axis: twice or half of a whole number, else as far as the last step; None if there is none
    that can be run.
    """
    if here <= 0:
        return None
    step = here / near if near > 0 else 2.0
    value = float(f"{here * min(max(step, 0.1), 10.0):.3g}")
    if isinstance(here, int):
        value = here * 2 if here > near else here // 2
    if axis == "world_size":
        value = min(value, _capacity(row) or value)
    if value <= 0 or value == here or (value - here) * (here - near) < 0:
        return None
    return value if questions_of_rows([row]).can_run(row, axis, value) else None


def _capacity(row: Row) -> int | None:
    """The number of ranks that the machine of a trial can run; None if the record does not say."""
    limits = []
    for record in row.counted:
        if record.device.startswith("cuda"):
            limits.append(len(record.machine.get("gpus") or []))
        elif cores := record.machine.get("cores"):
            limits.append(cores // record.config.get("threads_per_rank", 1))
    return min(limits, default=None)


def _more_ranks(table: Table, objective: Objective, best: Candidate) -> str:
    """The world sizes that the machine can run, if a sweep has only one world size."""
    tried = {row.world_size for row in table.rows}
    room = _capacity(best.row)
    may_help = objective.ranks_may_help and table.questions.scales_world_size
    if not may_help or len(tried) > 1 or room is None or room <= max(tried):
        return ""
    sizes = sorted({min(2**power, room) for power in range(math.ceil(math.log2(room)) + 1)} | tried)
    return (
        f"--world-size {' '.join(map(str, sizes))}: {count_noun(tried.pop(), 'rank')} alone was tried, and the machine "
        f"has room for {room}."
    )


def _more_repeats(
    objective: Objective, best: Candidate, indistinguishable: Sequence[Candidate], model: BlockModel
) -> str:
    """The number of repeats that would distinguish the best configuration from the indistinguishable ones."""
    if not indistinguishable or objective.is_exact:
        return ""
    differences = [objective.differences(candidate, best) for candidate in indistinguishable]
    fewest = min(map(len, differences))
    if fewest < MIN_REPEATS:
        return f"--repeats 5: with n={fewest} the best ones are not distinguished."
    # What hardly differs is not worth repeats, however few would show it.
    worth = [worse for worse in differences if objective.is_learned or abs(fmean(worse)) >= _HARDLY]
    resolution = resolution_of(objective.measure, best.row.counted)
    needed = [
        count
        for worse in worth
        if (count := repeats_to_tell(worse, model.critical_value, MOST_REPEATS, resolution)) is not None
    ]
    if not needed:
        return ""
    of_them = "the other one" if len(differences) == 1 else f"all {len(differences)} others"
    rest = ""
    if len(needed) < len(differences):
        of_them, rest = f"{len(needed)} of {len(differences)} others", "; the rest differ too little"
    return (
        f"--repeats {max(*needed, len(best.samples) + 1)}: would distinguish the best one from {of_them} 4 times in 5, "
        f"if the differences and spreads seen here are the true ones{rest}."
    )


def _scaled_lr(table: Table, objective: Objective) -> str:
    """A learning rate that follows the batch, where accuracy falls with the batch at one learning rate."""
    if not table.questions.tunes_training or not objective.follows_learning_rate:
        return ""
    is_scaled = any(record.config.get("lr_scaling", "none") != "none" for row in table.rows for record in row.records)
    if is_scaled or {"lr", "lr_scaling", "epochs"} & set(table.varied):
        return ""
    together = [row for row in table.rows if not row.independent_ranks]
    rows = [row for row in together if row.value_of("test_accuracy") is not None and row.factors.get("global_batch")]
    groups = all_groups_along_axis(rows, table.fixed_batch_field, table.fixed_batch_field)
    for group in sorted(groups, key=len, reverse=True):
        ordered = sorted(group, key=lambda row: int(row.factors["global_batch"]))
        small, large = ordered[0], ordered[-1]
        less = small.difference_from(large, "test_accuracy")
        faster = large.speed_against(small)
        if is_above(less, 0) and is_above(faster, 1):
            base = small.factors["global_batch"]
            return (
                f"--lr-scaling none sqrt linear --lr-base-batch {base}: from global_batch {base} to "
                f"{large.factors['global_batch']} training is {format_interval(faster, RATIO, null=1)} times as fast, "
                f"and test accuracy falls by {format_interval(less, ACCURACY, null=0)} at one learning rate and equal "
                "epochs."
            )
    return ""


def _smaller(table: Table) -> list[str]:
    """Smaller passes at the same global batch, for each configuration that ran out of memory."""
    if not table.questions.tunes_training:
        return []
    tried = [factors_of(row.records[0]) for row in table.rows]
    lines = []
    for row, factors in zip(table.rows, tried, strict=True):
        batch, passes = factors.get("batch_per_rank"), 2 * factors.get("accum_steps", 1)
        if not batch or batch % 2 or any(record.outcome is not Outcome.OOM for record in row.records):
            continue
        is_tried = {**factors, "batch_per_rank": batch // 2, "accum_steps": passes} in tried
        if not is_tried and table.questions.can_run(row, "accum_steps", passes):
            lines.append(
                f"--batch-per-rank {batch // 2} --accum-steps {passes}: the global_batch of "
                f"{describe_configuration(row.factors)}, which ran out of memory, in smaller passes."
            )
    return lines[:3]


def batch_by_noise_scale(table: Table, best: Candidate | None) -> str:
    """Which global batch the gradient noise scale suggests, and what that means; empty where it was not measured.

    McCandlish et al. 2018, arXiv 1812.06162, section 2: to a given loss, (steps / fewest steps - 1) x (samples / fewest
    samples - 1) = 1, and both are twice their least at a batch of about the noise scale.

    Args:
        table: the sweep's table.
        best: the configuration whose noise scale is used where it is known.
    """
    measured = [row for row in table.rows if (row.value_of("gradient_noise_scale") or 0) > 0]
    if not measured:
        return ""
    row = best.row if best is not None and best.row in measured else measured[0]
    scale = row.estimates["gradient_noise_scale"]
    size = _power_of_two(scale.centre)
    bounds = ""
    if scale.low is not None and scale.high is not None and scale.low > 0 and scale.high < 2**31:
        low, high = _power_of_two(scale.low), _power_of_two(scale.high)
        bounds = f" ({low} to {high} by its interval)" if low < high else ""
    levels = [row.estimates["gradient_noise_scale"].centre for row in measured]
    spread = f"; {GENERIC(min(levels))} to {GENERIC(max(levels))} over configurations" if len(levels) > 1 else ""
    tried = {factors_of(row.records[0]).get("global_batch") for row in table.rows}
    return (
        f"--global-batch {size}{bounds}, {'which was tried' if size in tried else 'not tried'}, is about the gradient "
        f"noise scale of {describe_configuration(row.factors)}: {format_interval(scale, GENERIC)} samples "
        f"(n={scale.n}{spread}). There training takes twice the fewest steps and twice the fewest samples (McCandlish "
        "et al. 2018, arXiv 1812.06162); the scale grows while training goes on, and says nothing of how fast a step "
        "is."
    )


def _power_of_two(value: float) -> int:
    return int(2 ** max(round(math.log2(value)), 0))
