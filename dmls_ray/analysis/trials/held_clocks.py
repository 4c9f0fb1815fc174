"""What held the clocks of GPUs down in the runs of a trial."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.records.gpu_state import HELD_BY

_FROM = 0.1
"""Share of a run from which on it is said that clocks were held down."""


def held_clocks(trial: Trial) -> dict[str, float]:
    """What held clocks down in the counted runs of a trial -> in which share of the run that had most of it."""
    shares = {}
    for name in HELD_BY:
        most = max((record.metrics.get(f"held_by_{name}", 0.0) for record in trial.counted), default=0.0)
        if most >= _FROM:
            shares[name] = most
    return shares


def describe_held_clocks(trials: Sequence[Trial]) -> list[str]:
    """`batch_per_rank=64 (power in 93% of a run)` of each trial in which the clocks of a GPU were held down."""
    texts = []
    for trial in trials:
        parts = [f"{name} in {share:.0%} of a run" for name, share in held_clocks(trial).items()]
        if parts:
            texts.append(f"{describe_configuration(trial.factors)} ({', '.join(parts)})")
    return texts
