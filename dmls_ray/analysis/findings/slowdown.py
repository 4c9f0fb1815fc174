"""`Slowdown`: whether one value of a field may take the place of another one, by the speed of the runs with both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dmls_ray.analysis.findings.effects import HOPELESS, Effect, compare, speed, time_measure
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.axis import Pair, group_by_other_factors
from dmls_ray.analysis.trials.common_metrics import durations_of, speed_metric
from dmls_ray.config.options import Until

Word = Literal["keep", "discard", "cannot say", "failed"]
"""keep: it is not slower by more than what counts as no difference. discard: it is, or it does not train. Both are
beyond chance. failed: the other one does not train."""


@dataclass(frozen=True)
class Slowdown:
    """Whether a value may take the place of another one."""

    allowed: float
    """Share of the speed that may be lost: 0.02 for 2%."""
    effects: Sequence[Effect] = ()
    """The speed of the value against the other one, for each configuration of the other fields; where no rate is known,
    the time of a step, or of a run."""
    outcomes: Sequence[str] = ()
    """How runs of the value ended where those of the other one trained and its own did not."""
    apart: Sequence[Pair] = ()
    """Those of which both trained, and not side by side: in one block of one session, on one machine, with
    the same versions."""

    @property
    def open(self) -> list[Effect]:
        """The effects of which neither is known: that they are worse than what may be lost, or that they are not."""
        return [effect for effect in self.effects if effect.shown(self.allowed) == "open"]

    @property
    def word(self) -> Word:
        """The verdict."""
        if not self.effects and not self.outcomes and not self.apart:
            return "failed"
        if self.outcomes or any(effect.shown(self.allowed) == "worse" for effect in self.effects):
            return "discard"
        return "cannot say" if self.open or self.apart else "keep"

    @property
    def more_repeats(self) -> int | None:
        """About how many further repeats decide it, if the noise stays as it is; None if more are not advised, or
        where that is not known.
        """
        if self.apart:
            return None
        most = 0
        for effect in self.open:
            limit = math.log1p(self.allowed) * effect.measure.better
            distance = abs(math.log(effect.contrast.centre) + limit)
            count = effect.repeats_until(distance)
            if count is None or count == HOPELESS:
                return None
            most = max(most, count - effect.contrast.n)
        return most


def judge_slowdown(trials: SweepTrials, name: str, values: tuple[str, str], until: Until) -> Slowdown:
    """Judge the second value of a field against the first one.

    Args:
        trials: the trials of both.
        name: the field.
        values: the value that is there, and the one that is to take its place.
        until: its `equivalent` is the share of the speed that may be lost.
    """
    axis = trials.axis_of(name)
    effects: list[Effect] = []
    outcomes: list[str] = []
    apart: list[Pair] = []
    for group in group_by_other_factors(trials.rows, {name}):
        by_value = {trial.factors[name]: trial for trial in group}
        base, trial = (by_value.get(value) for value in values)
        if base is None or trial is None or not base.counted:
            continue
        if not trial.counted:
            outcomes.append(trial.outcome)
            continue
        if trial.independent_ranks and not base.independent_ranks:
            outcomes.append("its ranks trained separate models")
            continue
        pair = axis.pair(group, trial, base)
        times = [replace(time_measure(metric), better=-1) for metric in durations_of([trial, base])]
        found = compare([pair], [speed(speed_metric(trial, base)), *times], until)
        timed = [effect for effect in found if effect.measure.kind in ("speed", "duration")]
        effects += timed[:1]
        if not timed:
            apart.append(pair)
    return Slowdown(until.equivalent, effects, outcomes, apart)
