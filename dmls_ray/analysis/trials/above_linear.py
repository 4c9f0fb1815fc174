"""Which trials are faster than their number of ranks explains."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.trials.trial import Trial, describe_configuration


def describe_above_linear(trials: Sequence[Trial]) -> list[str]:
    """Name each trial whose speed-up is above its number of ranks beyond chance."""
    named = []
    for trial in trials:
        speed_up = trial.speed_up
        if speed_up is not None and speed_up.low is not None and speed_up.low > trial.world_size > 1:
            named.append(describe_configuration(trial.factors))
    return named
