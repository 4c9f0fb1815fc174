"""`Overfitting`: how a trial whose test loss rises while its train loss falls ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dmls_ray.analysis.stats.intervals import MIN_REPEATS
from dmls_ray.analysis.trials.trial import Trial


@dataclass(frozen=True)
class Overfitting:
    """The end of a trial that overfits."""

    trial: Trial
    first: int
    """The first epoch after the least test loss; of runs in which it differs, the earliest one."""
    last: int
    """The latest one."""
    epochs: int
    """How many epochs its runs have."""
    is_beyond_chance: bool
    """Whether enough repeats show it; else every run of the trial has it."""


def overfitting_of(trials: Iterable[Trial]) -> list[Overfitting]:
    """The trials that overfit: beyond chance, or, with too few repeats for that, in every run."""
    found = []
    for trial in trials:
        epochs = max((len(run.epochs) for run in trial.counted), default=0)
        if trial.overfit_epoch is not None:
            found.append(Overfitting(trial, trial.overfit_epoch, trial.overfit_epoch, epochs, True))
        elif len(trial.counted) < MIN_REPEATS:
            firsts = [run.metrics.get("overfit_epoch") for run in trial.counted]
            known = [int(first) for first in firsts if first is not None]
            if known and len(known) == len(firsts):
                found.append(Overfitting(trial, min(known), max(known), epochs, False))
    return found


def are_without_overfitting(trials: Iterable[Trial]) -> bool:
    """Whether losses are known of each run to its end, and no run of too few repeats is seen to overfit.

    Not without any run: it shows nothing.
    """
    is_any = False
    for trial in trials:
        for run in trial.counted:
            is_any = True
            tested = [epoch for epoch in run.epochs if {"train_loss", "test_loss"} <= epoch.metrics.keys()]
            is_seen = len(trial.counted) < MIN_REPEATS and "overfit_epoch" in run.metrics
            if len(tested) < 2 or is_seen or tested[-1] is not run.epochs[-1]:
                return False
    return is_any
