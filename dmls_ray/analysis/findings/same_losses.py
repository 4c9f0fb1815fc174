"""`judge_losses`: whether two trials train the same, by the loss of each of their first steps."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Literal

import msgspec

from dmls_ray.analysis.findings.same_training import COARSE_ROUNDING, FULL_FORMATS, ROUNDING, number_format_of
from dmls_ray.analysis.trials.steps import are_equal_sizes, samples_of_step
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.outcome import Outcome

_GROWTH = 100
"""By how much more than those of the first step later losses may differ: rounding grows with the steps."""
_JUMP = 10
"""A difference beyond rounding is no rounding that has grown if it is so many times the largest one before."""

_SLOWLY = (
    "the difference grew slowly, as rounding does, and as a small change of the update does; fewer steps or float64 "
    "may tell them apart"
)
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
        return LossVerdict("cannot say", f"{sizes}; give each setting a batch with which all ranks have equally many")

    rounding = (
        ROUNDING if FULL_FORMATS.issuperset((number_format_of(trial), number_format_of(base))) else COARSE_ROUNDING
    )
    # Code that accumulates gradients may divide the loss of each pass, or not.
    divided = (trial.value_of("backward_passes") or 1.0) / (base.value_of("backward_passes") or 1.0)
    verdicts = []
    for record, other in zip(trial.records, base.records, strict=False):
        verdicts.append(compare_losses(record.step_losses, other.step_losses, divided, rounding))
    verdict = min(verdicts, key=lambda each: (ORDER.index(each.verdict), each.step or 0))
    if verdict.step == 1 and not is_known:
        reason = "how many samples a step has is not known; state them by --samples"
        return msgspec.structs.replace(verdict, verdict="cannot say", reason=reason)
    return msgspec.structs.replace(verdict, reason=verdict.reason or shared)


def compare_losses(losses: Sequence[float], base: Sequence[float], divided: float, rounding: float) -> LossVerdict:
    """Compare the losses of the steps of two runs.

    Args:
        losses: of each step of a run.
        base: of each step of the other one.
        divided: by how much smaller the losses may be since code divides them by its backward passes.
        rounding: relative difference of the first step up to which losses are equal.
    """
    steps = min(len(losses), len(base))
    if steps < 2:
        # The second step is the first after an update.
        reason = f"the losses that backward passes begin with were seen of {steps} steps, and 2 or more are needed"
        return LossVerdict("cannot say", reason, steps)
    factor = min((1.0, divided), key=lambda each: abs(losses[0] * each - base[0]))
    largest = 0.0
    for step, (loss, other) in enumerate(zip(losses, base, strict=False), 1):
        difference = abs(loss * factor - other) / (abs(other) or 1.0)
        if difference > rounding * min(step, _GROWTH):
            is_sudden = difference > _JUMP * largest
            seen = (steps, step, (loss * factor, other), largest, rounding)
            return LossVerdict("different", "", *seen) if is_sudden else LossVerdict("cannot say", _SLOWLY, *seen)
        largest = max(largest, difference)
    word: SameWord = "within rounding" if largest else "bit-identical"
    return LossVerdict(word, "", steps, largest=largest, rounding=rounding)
