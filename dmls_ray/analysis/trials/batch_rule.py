"""Whether the samples that were counted follow the batch of a sweep: where they contradict it, they are not known."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from dmls_ray.analysis.trials.axis import count_values, group_by_other_factors
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.returned import is_number

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
    "samples": ("samples_per_step", "samples_per_s", "joules_per_sample", "cost_per_million_samples"),
    "tokens": ("tokens_per_step", "tokens_per_s", "cost_per_million_tokens"),
}
"""Unit -> its number in a step, and what follows from it."""


def with_known_samples(trials: Sequence[Trial]) -> list[Trial]:
    """The trials; those whose samples or tokens contradict a batch have none, and the reason as a fact of their runs.

    A batch is a field by its name, or one that multiplies what models are given.
    """
    known = {trial.trial_id: trial for trial in trials}
    for axis in trials[0].factors if trials else ():
        if count_values(trials, axis) < 2:
            continue
        words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", axis)}
        is_batch = bool(words & _BATCH) and not words & _NO_BATCH
        if words & _OF_SAMPLE and not is_batch:
            continue
        for group, unit in itertools.product(group_by_other_factors(trials, {axis}), _UNITS):
            reason = _contradiction(group, axis, unit, is_batch=is_batch)
            if reason:
                for trial in group:
                    known[trial.trial_id] = _without(known[trial.trial_id], unit, reason)
    return list(known.values())


def _without(trial: Trial, unit: str, reason: str) -> Trial:
    """A trial without the number of a unit, and with the reason as a fact of its runs."""
    records = []
    for record in trial.records:
        metrics = {name: value for name, value in record.metrics.items() if name not in _UNITS[unit]}
        facts = {**record.facts, f"{unit}_unknown": reason}
        if unit == "samples":
            facts.pop("counted_by", None)
        records.append(record.replace(metrics=metrics, facts=facts))
    return replace(trial, records=records)


def _contradiction(group: Sequence[Trial], axis: str, unit: str, *, is_batch: bool) -> str:
    """Why the count of trials that differ in one field is wrong; empty if nothing says so."""
    metric = f"{unit}_per_step"
    trials = []
    counted_by = set()
    for trial in group:
        size = trial.factors[axis]
        if is_number(size) and size > 0 and trial.by_block(metric):
            trials.append(trial)
            counted_by |= {str(record.facts.get("counted_by", "")).partition(" ")[0] for record in trial.counted}
    # A loader knows its samples; the first dimension of what a model is given may be another one.
    if not trials or counted_by & _BY_USER or not (is_batch or counted_by == {"model"}):
        return ""
    trials.sort(key=lambda trial: trial.factors[axis])
    first, last = trials[0], trials[-1]
    low, high = first.factors[axis], last.factors[axis]
    if low == high:
        return ""
    few, many = fmean(first.by_block(metric).values()), fmean(last.by_block(metric).values())
    growth, count = math.log(high / low), math.log(many / few)
    given = _growth(first, last, "given_elements")
    if given is None:
        passes = _growth(first, last, "backward_passes")
        # Fewer passes may keep the samples of a step.
        is_kept = passes is not None and abs(passes + growth) <= _EXACTLY
        is_wrong = is_batch and count < _HARDLY * growth and not is_kept
    elif abs(given - growth) <= _EXACTLY and is_batch:
        is_wrong = abs(count - growth) > _HARDLY * growth + _EXACTLY
    else:
        # Models are given no more where the samples of a step are the same.
        is_grown = abs(given - growth) <= _EXACTLY or (is_batch and given >= _HARDLY * growth)
        is_wrong = is_grown and count < _HARDLY * growth
    if not is_wrong:
        return ""
    return f"{axis} {low} -> {high}, and {few:.4g} -> {many:.4g} {unit} were counted"


def _growth(first: Trial, last: Trial, metric: str) -> float | None:
    """The logarithm of the ratio of a metric of two trials; None where the metric is not known."""
    values, last_values = first.by_block(metric).values(), last.by_block(metric).values()
    if not values or not last_values:
        return None
    return math.log(fmean(last_values) / fmean(values))
