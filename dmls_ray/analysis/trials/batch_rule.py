"""Whether the samples that were counted follow the batch of a sweep: where they contradict it, they are not known."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from dmls_ray.analysis.trials.axis import count_values, group_by_other_factors, is_number
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord

_BATCH = {"batch", "batchsize", "bs", "bsz", "gbs", "mbs", "mbsz", "microbatch", "minibatch"}
_NO_BATCH = {"eval", "test", "val", "valid", "validation", "dev", "infer", "inference", "num", "norm", "every", "log"}
"""Words of a name with one of the others that is yet not the size of a batch that is trained."""
_OF_SAMPLE = {
    "len", "length", "seq", "sequence", "block", "context", "ctx", "window", "width", "height", "dim", "dims", "hidden",
    "features", "channels", "resolution", "frames",
}  # fmt: skip
"""Words of the name of what makes each sample larger."""
_BY_USER = {"user", "--samples"}
_HARDLY = 0.1
"""Share of the logarithm of a factor up to which a number does not follow it."""
_EXACTLY = 0.05
"""Difference of logarithms up to which a number changes by a factor."""
_UNITS: Mapping[str, Collection[str]] = {
    "samples": ("samples_per_step", "samples_per_s", "joules_per_sample"),
    "tokens": ("tokens_per_step", "tokens_per_s"),
}
"""Unit -> its number in a step, and what follows from it."""


def with_known_samples(trials: Sequence[Trial]) -> list[Trial]:
    """The trials; those whose samples or tokens contradict a batch have none, and the reason as a fact of their runs.

    A batch is a field by its name, or one that multiplies what models are given.
    """
    reasons: dict[tuple[str, str], str] = {}
    for axis in trials[0].factors if trials else ():
        if count_values(trials, axis) < 2:
            continue
        words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", axis)}
        is_batch = bool(words & _BATCH) and not words & _NO_BATCH
        if words & _OF_SAMPLE and not is_batch:
            continue
        for group in group_by_other_factors(trials, {axis}):
            for unit in _UNITS:
                if reason := _contradiction(group, axis, unit, is_batch=is_batch):
                    reasons |= {(trial.trial_id, unit): reason for trial in group}
    kept = []
    for trial in trials:
        records = trial.records
        for unit in _UNITS:
            if (trial.trial_id, unit) in reasons:
                records = [_without(record, unit, reasons[trial.trial_id, unit]) for record in records]
        kept.append(trial if records is trial.records else replace(trial, records=records))
    return kept


def _without(record: RunRecord, unit: str, reason: str) -> RunRecord:
    """A record without the number of a unit, and with the reason."""
    metrics = {name: value for name, value in record.metrics.items() if name not in _UNITS[unit]}
    facts = {**record.facts, f"{unit}_unknown": reason}
    if unit == "samples":
        facts.pop("counted_by", None)
    return record.replace(metrics=metrics, facts=facts)


def _contradiction(group: Sequence[Trial], axis: str, unit: str, *, is_batch: bool) -> str:
    """Why the count of trials that differ in one field is wrong; empty if nothing says so."""
    metric = f"{unit}_per_step"
    trials = [trial for trial in group if _is_size(trial.factors[axis]) and trial.by_block(metric)]
    trials.sort(key=lambda trial: trial.factors[axis])
    if not trials or trials[0].factors[axis] == trials[-1].factors[axis]:
        return ""
    facts = [record.facts.get("counted_by", "") for trial in trials for record in trial.counted]
    counted_by = {str(fact).partition(" ")[0] for fact in facts}
    # A loader knows its samples; the first dimension of what a model is given may be another one.
    if counted_by & _BY_USER or not (is_batch or counted_by == {"model"}):
        return ""
    ends = trials[0], trials[-1]
    low, high = (trial.factors[axis] for trial in ends)
    counts = [_mean(trial, metric) for trial in ends]
    growth = math.log(high / low)
    count, given = math.log(counts[1] / counts[0]), _growth(ends, "given_elements")
    if given is None:
        passes = _growth(ends, "backward_passes")
        # Fewer passes may keep the samples of a step.
        is_kept = passes is not None and abs(passes + growth) <= _EXACTLY
        is_wrong = is_batch and count < _HARDLY * growth and not is_kept
    elif abs(given - growth) <= _EXACTLY and is_batch:
        is_wrong = abs(count - growth) > _HARDLY * growth + _EXACTLY
    else:
        # Models are given no more where the samples of a step are the same.
        is_grown = abs(given - growth) <= _EXACTLY or (is_batch and given >= _HARDLY * growth)
        is_wrong = is_grown and count < _HARDLY * growth
    return f"{axis} {low} -> {high}, and {counts[0]:.4g} -> {counts[1]:.4g} {unit} were counted" if is_wrong else ""


def _is_size(value: object) -> bool:
    return is_number(value) and value > 0  # type: ignore[operator]


def _mean(trial: Trial, metric: str) -> float:
    return fmean(trial.by_block(metric).values())


def _growth(ends: tuple[Trial, Trial], metric: str) -> float | None:
    """The logarithm of the ratio of a metric of two trials; None where it is not known."""
    if not all(trial.by_block(metric) for trial in ends):
        return None
    return math.log(_mean(ends[1], metric) / _mean(ends[0], metric))
