"""`knees_of`: the smallest value of a field that is as fast as the fastest one, within 2%."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmls_ray.analysis.findings.effects import Effect, effect_of
from dmls_ray.analysis.findings.measures import speed
from dmls_ray.analysis.trials.axis import Pair, groups_along_axis
from dmls_ray.analysis.trials.common_metrics import common_rate
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.config.options import Until

CLOSE = 0.02
"""Share of the best rate that a smaller value may lack."""


@dataclass(frozen=True)
class Knee:
    """The smallest value that is surely within `CLOSE` of the best rate, among trials that differ in it alone."""

    smallest: Trial
    best: Trial
    effect: Effect | None
    """The speed of the smallest against the best; None where it is the best itself."""
    undecided: Sequence[Trial]
    """Trials with smaller values that may be within, too."""


def knees_of(trials: Sequence[Trial], name: str, fixed_batch_field: str, until: Until) -> list[Knee]:
    """The knee of each group of trials that differ in one field alone and have a rate: runs per second are none.

    Args:
        trials: those of one table.
        name: the field.
        fixed_batch_field: as of `groups_along_axis`.
        until: what counts as equal.
    """
    together = [trial for trial in trials if trial.counted and not trial.independent_ranks]
    groups = groups_along_axis(together, name, fixed_batch_field)
    return [_knee_of(group, name, until) for group in groups if common_rate(group)]


def _knee_of(group: Sequence[Trial], name: str, until: Until) -> Knee:
    ordered = sorted(group, key=lambda row: row.records[0].config[name])
    measure = speed(common_rate(ordered))
    best = measure.best_of(ordered)
    undecided: list[Trial] = []
    for trial in ordered:
        if trial is best:
            break
        effect = effect_of([Pair(trial, best)], measure, until)
        shown = "open" if effect is None else effect.shown(CLOSE)
        if shown == "kept":
            return Knee(trial, best, effect, undecided)
        if shown == "open":
            undecided.append(trial)
    return Knee(best, best, None, undecided)
