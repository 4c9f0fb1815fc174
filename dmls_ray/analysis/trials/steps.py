"""Where the time of an optimizer step goes in the runs of a trial, what bounds it, and how two trials differ in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median

from dmls_ray.analysis.stats.intervals import bonferroni_level, estimate, is_above, is_below
from dmls_ray.analysis.trials.axis import groups_along_axis
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.metrics import COLLECTIVES

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

_OWN = [name for name in PARTS if name != "exposed_comm_ms"]

TOGETHER = "backward_and_communication"
"""Part of a difference of steps: backward pass and communication, where it is not known of both what each takes."""

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
_ROUNDING = 1e-9
"""Relative difference of equal means."""
_UNEVEN_STEPS = 10
"""Median steps that the time beyond the median must be worth. One slow step of a few is no reason for a note."""


def step_parts(trial: Trial) -> dict[str, float]:
    """Milliseconds of the parts of a counted step, as means over the runs of a trial; empty where no run has them.

    They add up to the step, whose mean is the geometric one, as in tables. Those that are not known, as forward and
    backward pass of a user-defined function that calls no `backward()`, are 0: their time is in the rest.
    """
    return _mean_parts(parts_by_block(trial).values())


def _mean_parts(runs: Collection[dict[str, float]]) -> dict[str, float]:
    if not runs:
        return {}
    steps = [sum(parts.values()) for parts in runs]
    factor = geometric_mean(steps) / fmean(steps) if min(steps) > 0 else 1.0
    return {name: factor * fmean(parts[name] for parts in runs) for name in PARTS}


def bound_of(trial: Trial, smaller: Trial | None = None, larger: Trial | None = None) -> str:
    """What bounds the speed of a trial; empty where its parts are not known, `none` where none dominates.

    Without another batch, or where its steps do not distinguish them, `compute or launch`.

    Args:
        trial: the trial.
        smaller: the same trial with the next smaller batch per rank, if there is one.
        larger: the same trial with the next larger batch per rank, if there is one.
    """
    parts = step_parts(trial)
    step_ms = sum(parts.values())
    if not step_ms:
        return "none" if parts else ""
    if parts["data_wait_ms"] >= INPUT_BOUND * step_ms:
        return "input"
    if not knows_communication(trial):
        return ""
    if parts["exposed_comm_ms"] + parts["waiting_ms"] >= COMMUNICATION_BOUND * step_ms:
        return "communication"
    if parts["forward_ms"] + parts["backward_ms"] + parts["optimizer_ms"] < COMPUTE_BOUND * step_ms:
        return "none"
    shares = _growing_shares(smaller or trial, trial, larger or trial)
    if not shares:
        return "compute or launch"
    low, high = estimate(shares).ends
    if low > _HALF:
        return "compute"
    return "launch" if high < _HALF else "compute or launch"


def _growing_shares(smaller: Trial, trial: Trial, larger: Trial) -> list[float]:
    """The share of a trial's step that grows with the batch, from the steps with a smaller and a larger one.

    Of each block that has them; none without two batches.
    """
    if smaller is larger:
        return []
    here, shorter, longer = parts_by_block(trial), parts_by_block(smaller), parts_by_block(larger)
    bigger = larger.factors["batch_per_rank"] - smaller.factors["batch_per_rank"]
    shared = trial.common_blocks(smaller) & trial.common_blocks(larger)
    shares = []
    for block in shared & here.keys() & shorter.keys() & longer.keys():
        further_ms = sum(longer[block].values()) - sum(shorter[block].values())
        if step_ms := sum(here[block].values()):
            shares.append(trial.factors["batch_per_rank"] / bigger * further_ms / step_ms)
    return shares


def bounds_of(trials: Sequence[Trial], varied: Collection[str], fixed_batch_field: str) -> dict[str, str]:
    """What bounds each trial of a sweep, by trial_id, with its other batches to see what a step takes at any.

    Args:
        trials: the trials.
        varied: the fields that vary.
        fixed_batch_field: the batch that stays where the number of ranks changes.
    """
    timed = [trial for trial in trials if trial.timed]
    found = {trial.trial_id: bound_of(trial) for trial in timed}
    if "batch_per_rank" not in varied:
        return found
    batched = [trial for trial in timed if trial.factors["batch_per_rank"]]
    for group in groups_along_axis(batched, "batch_per_rank", fixed_batch_field):
        ordered = sorted(group, key=lambda trial: int(trial.factors["batch_per_rank"]))
        for smaller, trial, larger in zip([None, *ordered], ordered, [*ordered[1:], None], strict=False):
            found[trial.trial_id] = bound_of(trial, smaller, larger)
    return found


@dataclass(frozen=True)
class StepChange:
    """How the steps of two trials differ, in milliseconds."""

    step_ms: float
    base_ms: float
    changes: Mapping[str, float]
    """Part of a step -> by how much it is longer; they add up to the difference of the steps."""
    samples: float
    """How many times the samples of the other trial a step of all ranks has; 1 where that is not known."""
    slower_rank: tuple[int, float] | None
    """The rank of the trial that is slower than its others, and by how much."""
    collectives: Mapping[str, float] | None
    """Kind of a collective -> milliseconds of a step of the trial in which its ranks wait for it; empty where only DDP
    communicates; None where they are not known."""
    base_collectives: Mapping[str, float] | None
    """Likewise of the base."""


def step_change(trial: Trial, base: Trial) -> StepChange | None:
    """Where the difference between the steps of two trials goes, in the blocks in which their times may be compared.

    None where a part is not known, or the steps are not known to differ beyond chance, as in one or two such blocks.

    Args:
        trial: a trial.
        base: the one that it is compared with.
    """
    runs, base_runs = parts_by_block(trial), parts_by_block(base)
    common = sorted(trial.common_blocks(base) & runs.keys() & base_runs.keys())
    after = _mean_parts([runs[block] for block in common])
    before = _mean_parts([base_runs[block] for block in common])
    # Of a user-defined function, the parts may not be known.
    if not any(before.values()) or not after.get("forward_ms"):
        return None
    steps = [(sum(runs[block].values()), sum(base_runs[block].values())) for block in common]
    longer = estimate([ms / base_ms for ms, base_ms in steps if base_ms], "ratio")
    if not (is_above(longer, 1) or is_below(longer, 1)):
        return None
    if knows_communication(trial) != knows_communication(base):
        after, before = _together(after), _together(before)
    changes = {name: after[name] - before[name] for name in after}
    samples, base_samples = samples_of_step(trial), samples_of_step(base)
    factor = 1.0
    if samples and base_samples and not are_equal_sizes(trial, base, samples, base_samples):
        factor = samples / base_samples
    kinds, base_kinds = collectives_of(trial), collectives_of(base)
    return StepChange(sum(after.values()), sum(before.values()), changes, factor, slower_rank(trial), kinds, base_kinds)


def collectives_of(trial: Trial) -> dict[str, float] | None:
    """Milliseconds of a step in which ranks wait for each kind of collective, as means over the runs of a trial.

    None where they are not known.
    """
    if not knows_communication(trial) or trial.by_block("unseen_collectives"):
        return None
    found = {}
    for kind in COLLECTIVES:
        if values := trial.by_block(f"{kind}_ms").values():
            found[kind] = fmean(values)
    return found


def knows_communication(trial: Trial) -> bool:
    """Whether the communication of a trial's ranks was measured, or there is none."""
    return trial.world_size == 1 or any("exposed_comm_ms" in record.metrics for record in trial.timed)


def _together(parts: Mapping[str, float]) -> dict[str, float]:
    """Parts of a step in which communication is none of its own: under DDP it ends with the backward pass."""
    joined = dict(parts)
    joined[TOGETHER] = joined.pop("backward_ms") + joined.pop("exposed_comm_ms") + joined.pop("waiting_ms")
    return joined


def slower_rank(trial: Trial) -> tuple[int, float] | None:
    """The rank that takes longer than the others, on average, for what it does itself, and by how many ms a step.

    None where no rank is slower beyond chance, or by less than a share of the step.
    """
    later: dict[int, list[float]] = {}
    for record in trial.timed:
        # What a rank does itself in a step.
        own_ms = {rank.rank: sum(rank.metrics.get(name, 0.0) for name in _OWN) for rank in record.ranks}
        for rank, own in own_ms.items():
            later.setdefault(rank, []).append(own - fmean(own_ms.values()))
    count = len(later)
    if count < 2:
        return None
    slowest = max(later, key=lambda rank: fmean(later[rank]))
    # Than the mean of the others.
    than_others = [value * count / (count - 1) for value in later[slowest]]
    behind = estimate(than_others, level=bonferroni_level(count))
    is_large = behind.centre >= _SLOWER_RANK * sum(step_parts(trial).values())
    return (slowest, behind.centre) if is_large and is_above(behind, 0) else None


def samples_of_step(trial: Trial) -> float | None:
    """Samples of a step on all ranks: as counted, else by the fields of a trial; None where neither says it."""
    counted = trial.by_block("samples_per_step").values()
    if counted:
        return median(counted)
    return configured_samples(trial) if has_configured_samples(trial) else None


def has_configured_samples(trial: Trial) -> bool:
    """Whether the fields of a trial say how many samples a step has, and nothing that was seen contradicts them."""
    is_unknown = any("samples_unknown" in record.facts for record in trial.counted)
    return "batch_per_rank" in trial.records[0].config and not is_unknown


def are_equal_sizes(trial: Trial, base: Trial, size: float, base_size: float) -> bool:
    """Whether two means over counted steps, of samples or tokens, may be of equal batches.

    Where other steps count, more of them may be the last of a pass over the data, which is smaller: one more of the
    steps of each trial, at most.
    """
    counts, base_counts = trial.by_block("counted_steps"), base.by_block("counted_steps")
    if counts == base_counts:
        return abs(size - base_size) <= _ROUNDING * max(size, base_size)
    slack = sum(1 / max(median(each.values()), 1) for each in (counts, base_counts) if each)
    return abs(size - base_size) < slack * max(size, base_size)


def configured_samples(trial: Trial) -> float:
    """Samples of a step on all ranks, by the fields of a trial."""
    config = trial.records[0].config
    of_rank = float(config.get("batch_per_rank") or 1) * float(config.get("accum_steps") or 1)
    return of_rank * trial.world_size


def has_uneven_steps(trial: Trial) -> bool:
    """Whether the counted steps of a run took twice as long as if each had been the median step, or longer.

    The factor was at most 1.44 in 1,500 runs of results/reference, and 4.8 to 6.4 where steps rewrote a model. Not of
    user-defined functions, which have no `warmup_steps`: what they do between two steps is a part of the second.
    """
    for record in trial.timed:
        metrics = record.metrics
        if {"train_s", "steps", "warmup_steps", "step_ms_p50"} <= metrics.keys():
            counted = metrics["steps"] - metrics["warmup_steps"]
            median_s = metrics["step_ms_p50"] / 1e3
            if metrics["train_s"] - counted * median_s >= max(counted, _UNEVEN_STEPS) * median_s > 0:
                return True
    return False


def parts_by_block(trial: Trial) -> dict[int, dict[str, float]]:
    """The parts of a step, by block, of the runs that have them."""
    runs = {}
    for record in trial.timed:
        if "data_wait_ms" not in record.metrics:
            continue
        parts = {name: record.metrics.get(name, 0.0) for name in PARTS}
        exposed = [rank.metrics["exposed_comm_ms"] for rank in record.ranks if "exposed_comm_ms" in rank.metrics]
        if exposed:
            # A rank that is ahead waits inside the timer of its communication.
            parts["waiting_ms"] = fmean(exposed) - min(exposed)
        runs[record.repeat] = parts
    return runs
