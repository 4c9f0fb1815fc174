"""`Replacement`: whether one value of a field may take the place of another one, by the runs with both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from dmls_ray.analysis.findings.effects import HOPELESS, Effect, effect_of
from dmls_ray.analysis.findings.measures import Measure, speed, time_measure
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.axis import Pair, group_by_other_factors
from dmls_ray.analysis.trials.common_metrics import durations_of, speed_metric
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.config.options import Until
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome, outcome_counts

_Shown = Literal["keep", "discard", "cannot say"]
Word = Literal["keep", "discard", "cannot say", "failed"]
"""keep: it is good enough. discard: it is not, or it does not train. Both are beyond chance. failed: the other one does
not train."""


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """Whether a value may take the place of another one.

    By the speed, good enough is what is not slower by more than a share. Where no rate is known, effects are those of
    the time of a step, or of a run. By a metric, good enough is what is better.
    """

    allowed: float | None
    """Share of the speed that may be lost: 0.02 for 2%. None where the sweep is judged by a metric."""
    effects: list[Effect] = field(default_factory=list)
    """The value against the other one, for each configuration of the other fields."""
    outcomes: list[str] = field(default_factory=list)
    """How runs of the value ended where those of the other one trained and its own did not."""
    failures: list[str] = field(default_factory=list)
    """How many runs of the value ended otherwise, where those of the other one trained and others of its own did."""
    failures_of_base: list[str] = field(default_factory=list)
    """The same of the other one."""
    apart: list[Pair] = field(default_factory=list)
    """Those of which both trained, and that have nothing to compare: not in one block of one session, on one machine,
    with the same versions, or without the metric."""

    def shown(self, effect: Effect) -> _Shown:
        """What one effect says beyond chance; of repeats that repeat one run, nothing is known of a metric."""
        if self.allowed is not None:
            return _SLOWDOWNS[effect.shown(self.allowed)]
        if effect.verdict in ("more", "less"):
            return "keep" if effect.gain > 0 else "discard"
        return "discard" if effect.verdict == "equal" else "cannot say"

    def missing(self, effect: Effect) -> float:
        """How narrow the half-width of an open effect must be to decide it, of ratios in the logarithm: its distance
        from what may be lost, or from no difference.
        """
        if self.allowed is None:
            return effect.size
        return abs(math.log(effect.contrast.centre) + math.log1p(self.allowed) * effect.measure.better)

    @property
    def open(self) -> list[Effect]:
        """The effects that say neither."""
        return [effect for effect in self.effects if self.shown(effect) == "cannot say"]

    @property
    def word(self) -> Word:
        """The verdict."""
        if not self.effects and not self.outcomes and not self.apart and not self.failures:
            return "failed"
        if self.outcomes:
            return "discard"
        if any(self.shown(effect) == "discard" for effect in self.effects):
            return "cannot say" if self.failures_of_base else "discard"
        return "cannot say" if self.open or self.apart or self.failures else "keep"

    @property
    def repeats_wanted(self) -> int | None:
        """About how many repeats decide it, if the noise stays as it is; None if more are not advised, or where that is
        not known.
        """
        if self.apart or self.failures or self.failures_of_base:
            return None
        counts = []
        for effect in self.open:
            count = effect.repeats_until(self.missing(effect))
            if count is None or count == HOPELESS:
                return None
            counts.append(count)
        return max(counts, default=None)


_CHANCE = 0.05
"""Probability below which something is beyond chance."""
_SLOWDOWNS: Mapping[str, _Shown] = {"worse": "discard", "kept": "keep", "open": "cannot say"}


def judge_replacement(trials: SweepTrials, name: str, values: tuple[str, str], until: Until) -> Replacement:
    """Judge the second value of a field against the first one.

    Args:
        trials: the trials of both.
        name: the field.
        values: the value that is there, and the one that is to take its place.
        until: its `equivalent` is the share of the speed that may be lost.
    """
    axis = trials.axis_of(name)
    metric = trials.questions.judged_by and trials.questions.judged_by[0]
    found = Replacement(allowed=until.equivalent if metric is None else None)
    for group in group_by_other_factors(trials.rows, {name}):
        by_value = {trial.factors[name]: trial for trial in group}
        base, trial = (by_value.get(value) for value in values)
        if base is None or trial is None or not base.counted:
            continue
        if not trial.counted:
            if _is_beyond_chance(trial, base):
                found.outcomes.append(trial.outcome)
            else:
                found.failures.append(f"none of its runs ended ok ({trial.outcome})")
            continue
        if trial.independent_ranks and not base.independent_ranks:
            found.outcomes.append("its ranks trained separate models")
            continue
        if metric and base.by_block(metric) and not trial.by_block(metric):
            found.outcomes.append(_no_number(trial.records[0], metric))
            continue
        found.failures.extend(_failures(trial, base, metric))
        found.failures_of_base.extend(_failures(base, trial, metric))
        pair = axis.pair(group, trial, base)
        for measure in _measures(trials, trial, base):
            effect = effect_of([pair], measure, until)
            if effect is not None:
                found.effects.append(effect)
                break
        else:
            found.apart.append(pair)
    return found


def _is_beyond_chance(trial: Trial, base: Trial) -> bool:
    """Whether a trial of which all runs failed would hardly have done so at the rate of the other one."""
    rate = 1 - len(base.counted) / len(base.records)
    failed = [record for record in trial.records if record.outcome is not Outcome.SKIPPED]
    return not failed or rate ** len(failed) < _CHANCE


def _failures(trial: Trial, base: Trial, metric: str | None) -> list[str]:
    """How runs of a trial ended that have nothing to compare, or had before they were run again, if these are more than
    those of the other one in the same blocks; what is compared is a choice among its runs then.
    """
    endings, of_base = ({record.repeat: _failure(record, metric) for record in each.records} for each in (trial, base))
    only = [ending for block, ending in endings.items() if ending and of_base.get(block) == ""]
    only_base = [block for block, ending in of_base.items() if ending and endings.get(block) == ""]
    if len(only) <= len(only_base):
        return []
    return [f"{len(only)} of its {len(endings)} runs ended otherwise ({outcome_counts(only)})"]


def _no_number(record: RunRecord, metric: str) -> str:
    """What a run has in place of the number of a metric."""
    text = record.facts.get(metric)
    return f"no finite number {metric}" if text is None else f"{metric} is {text!r}, which is no number"


def _failure(record: RunRecord, metric: str | None) -> str:
    """How a run ended that has nothing to compare; empty of others."""
    if record.outcome is not Outcome.OK:
        return record.ending
    if metric and metric not in record.metrics:
        return _no_number(record, metric)
    # A process that was killed may have been lost with its machine.
    failed = [attempt["outcome"] for attempt in record.earlier_attempts if attempt["outcome"] != Outcome.KILLED]
    return f"{failed[0]} before it was run again" if failed else ""


def _measures(trials: SweepTrials, trial: Trial, base: Trial) -> list[Measure]:
    """By what two trials are judged, the first that both have."""
    if trials.questions.judged_by is not None:
        return trials.questions.measures([base, trial])
    times = [replace(time_measure(metric), better=-1) for metric in durations_of([trial, base])]
    return [speed(speed_metric(trial, base)), *times]
