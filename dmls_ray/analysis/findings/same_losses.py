"""`judge_losses`: whether two trials train the same, by the loss of each of their first steps."""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from typing import Literal

import msgspec

from dmls_ray.analysis.findings.same_training import GROWTH, ROUNDING, number_format_of, rounding_of
from dmls_ray.analysis.trials.steps import are_equal_sizes, samples_of_step
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome

_JUMP = 10
"""A difference is no rounding that has grown if it is so many times the largest one before, and so many times that of
the first step."""
_ZERO = 1e-6
"""Losses that are no larger, or no larger a share of the largest, are 0 but for rounding."""
_NEAR = 4
"""Steps before and after a step whose losses say what the size of a loss is there."""

_SLOWLY = (
    "the difference grew slowly, as rounding does, and as a small change of the update does; fewer steps or float64 "
    "may tell them apart"
)
_AGAIN_EQUAL = (
    "the loss of the next step is the same again, so the updates may be, and the loss of this step may be weighted "
    "otherwise than its gradients; more steps, or a higher learning rate, may tell them apart"
)
_APART = (
    "{}. Losses show too little to tell whether each trains a part of the model or another one; a higher learning rate "
    "or float32 may"
)
_ALL_ZERO = "all losses are 0 but for rounding, so they do not show what is trained"
SameWord = Literal["failed", "different", "cannot say", "within rounding", "bit-identical"]
ORDER: tuple[SameWord, ...] = typing.get_args(SameWord)
"""The first one that a setting or a run has counts."""


class LossVerdict(msgspec.Struct, frozen=True):
    """How the losses of two trials compare."""

    verdict: SameWord
    reason: str = ""
    """What is missing, or what failed, and what would tell."""
    steps: int = 0
    """Steps whose losses were compared."""
    step: int | None = None
    """The first one beyond rounding, from 1."""
    losses: tuple[float, float] | None = None
    """Those of this step, of the trial and of the other one."""
    largest: float | None = None
    """The largest relative difference of a step that is within rounding."""
    rounding: float = ROUNDING
    """Relative difference of the first step up to which losses are equal. Step s may have s times as much, and at most
    a hundred times."""


def judge_losses(trial: Trial, base: Trial) -> LossVerdict:
    """Compare the losses of all steps that two trials both have, in runs with the same seed."""
    for record in (trial.records[0], base.records[0]):
        if record.outcome is not Outcome.OK:
            return LossVerdict("cannot say" if record.outcome is Outcome.SKIPPED else "failed", record.reason)
    shares_samples = "same_samples" in trial.records[0].facts.keys() - base.records[0].facts.keys()
    shared = "all ranks read the same samples" if shares_samples else ""
    samples, base_samples = samples_of_step(trial), samples_of_step(base)
    is_known = samples is not None and base_samples is not None
    if is_known and not are_equal_sizes(trial, base, samples or 0, base_samples or 0):
        sizes = f"{samples:g} samples a step instead of {base_samples:g}"
        if shared:
            return LossVerdict("different", f"{shared}: {sizes}", step=1)
        way_out = "give each setting a batch with which all have equally many, or --samples where it is miscounted"
        return LossVerdict("cannot say", f"{sizes}; {way_out}")

    rounding = rounding_of((number_format_of(trial), number_format_of(base)))
    ranks = trial.world_size / base.world_size
    verdicts = []
    for record, other in zip(trial.records, base.records, strict=False):
        passes = _ratios(record, other)
        # Code may divide the loss of each backward pass by their number, and that of each rank by the number of ranks,
        # or multiply it where DDP divides.
        of_ranks = (1, ranks, 1 / ranks)
        ways = ([by_pass**power * of_rank for by_pass in passes] for power in (0, 1) for of_rank in of_ranks)
        found = [compare_losses(record.step_losses, other.step_losses, factors, rounding) for factors in ways]
        verdicts.append(max(found, key=lambda each: (ORDER.index(each.verdict), each.step or 0)))
    verdict = min(verdicts, key=lambda each: (ORDER.index(each.verdict), each.step or 0))
    apart = trial.independent_ranks or base.independent_ranks
    if apart and verdict.verdict != "different" and (verdict.largest is None or verdict.largest > rounding):
        return msgspec.structs.replace(verdict, verdict="cannot say", reason=_APART.format(apart))
    if verdict.step == 1 and not is_known:
        reason = "how many samples a step has is not known; state them by --samples"
        return msgspec.structs.replace(verdict, verdict="cannot say", reason=reason)
    return msgspec.structs.replace(verdict, reason=verdict.reason or shared)


def _ratios(record: RunRecord, base: RunRecord) -> list[float]:
    """The backward passes of each step of a run by those of the other one."""
    passes, of_base = (each.step_passes or [1] * len(each.step_losses) for each in (record, base))
    return [max(count, 1) / max(other, 1) for count, other in zip(passes, of_base, strict=False)]


def compare_losses(
    losses: Sequence[float], base: Sequence[float], factors: Sequence[float], rounding: float
) -> LossVerdict:
    """Compare the losses of the steps of two runs.

    Args:
        losses: of each step of a run.
        base: of each step of the other one.
        factors: of each step, by how much smaller its loss may be.
        rounding: relative difference of the first step up to which losses are equal.
    """
    steps = min(len(losses), len(base))
    if steps < 2:
        # The second step is the first after an update.
        reason = f"the losses that backward passes begin with were seen of {steps} steps, and 2 or more are needed"
        return LossVerdict("cannot say", reason, steps)
    largest_loss = max(map(abs, [*losses, *base]))
    if largest_loss < _ZERO:
        return LossVerdict("cannot say", _ALL_ZERO, steps)
    differences = []
    for place, (loss, other, factor) in enumerate(zip(losses, base, factors, strict=False)):
        # A loss that may be 0 is a sum of terms that cancel, which are of the size of others near it.
        near = map(abs, base[max(0, place - _NEAR) : place + _NEAR + 1])
        differences.append(abs(loss * factor - other) / max(*near, _ZERO * largest_loss))
    largest, apart = 0.0, None
    for step, difference in enumerate(differences, 1):
        beyond = _beyond(difference, step, largest, rounding)
        if not beyond:
            largest = max(largest, difference)
            continue
        seen = (steps, step, (losses[step - 1] * factors[step - 1], base[step - 1]), largest, rounding)
        # What follows the last step is not known: as what followed the ones before, if these differed, too.
        following = [*differences, math.inf if apart is None else 0.0][step]
        if step == 1 or _beyond(following, step + 1, largest, rounding):
            if beyond == "jump":
                return LossVerdict("different", "", *seen)
            return LossVerdict("cannot say", _SLOWLY, *seen)
        apart = apart or LossVerdict("cannot say", _AGAIN_EQUAL, *seen)
    if apart is not None:
        return apart
    if len(losses) != len(base):
        reason = f"the first {steps} steps are the same, but losses were seen of {len(losses)} and of {len(base)} steps"
        return LossVerdict("cannot say", reason, steps, largest=largest, rounding=rounding)
    word: SameWord = "within rounding" if largest else "bit-identical"
    return LossVerdict(word, "", steps, largest=largest, rounding=rounding)


def _beyond(difference: float, step: int, largest: float, rounding: float) -> Literal["", "jump", "growth"]:
    """How a relative difference of losses is more than rounding; empty if it is not.

    Args:
        difference: of a step.
        step: the step, from 1.
        largest: the largest difference of the steps before.
        rounding: what rounding makes of the first step.
    """
    if difference > max(_JUMP * largest, rounding * min(step, _JUMP)):
        return "jump"
    return "growth" if difference > rounding * min(step, GROWTH) else ""
