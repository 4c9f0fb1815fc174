"""Which trials have runs that the CPU quota of a container stopped."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.trials.trial import Trial, describe_configuration

_FROM = 0.01
"""Share of the periods from which on it is said: a stop is shorter than a period, so less takes less of the time."""


def describe_throttling(trials: Sequence[Trial]) -> list[str]:
    """`batch_per_rank=64 (35% of the periods of 4 cores)` of each trial that a CPU quota stopped, in its worst run."""
    texts = []
    for trial in trials:
        shares = [record.metrics.get("throttled_by_quota", 0.0) for record in trial.counted]
        if max(shares, default=0.0) >= _FROM:
            worst = trial.counted[shares.index(max(shares))]
            periods = f"{max(shares):.0%} of the periods of {worst.metrics['quota_cores']:g} cores"
            texts.append(f"{describe_configuration(trial.factors)} ({periods})")
    return texts
