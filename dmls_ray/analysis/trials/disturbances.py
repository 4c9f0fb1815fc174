"""What made times other than those of a quiet machine at full clocks: held clocks, CPU quotas, other programs."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.trials.trial import Trial, describe_configuration, name_of_change
from dmls_ray.records.gpu_state import HELD_BY
from dmls_ray.records.model import RunRecord

_HELD_FROM = 0.1
"""Share of a run from which on it is said that clocks were held down."""
_STOPPED_FROM = 0.01
"""Share of the periods from which on it is said: a stop is shorter than a period, so less takes less of the time."""
_CORES = 0.3
"""Cores of other programs from which on it is said; Ray's own take about 0.1."""
_CPU_S = 0.2
"""Seconds of a core that they used in a run, at least: the kernel counts in hundredths of a second."""
_IDLE = 0.25
"""Share of the cores that were idle up to which other programs take something away."""
_MOST_FACTORS = 4
"""Fields of a configuration that a sentence names; of more, those that are not at their default."""


def held_clocks(trial: Trial) -> dict[str, float]:
    """What held clocks down in the counted runs of a trial -> in which share of the run that had most of it."""
    shares = {}
    for name in HELD_BY:
        most = max((record.metrics.get(f"held_by_{name}", 0.0) for record in trial.counted), default=0.0)
        if most >= _HELD_FROM:
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


def describe_throttling(trials: Sequence[Trial]) -> list[str]:
    """`batch_per_rank=64 (35% of the periods of 4 cores)` of each trial that a CPU quota stopped, in its worst run."""
    texts = []
    for trial in trials:
        shares = [record.metrics.get("throttled_by_quota", 0.0) for record in trial.counted]
        if max(shares, default=0.0) >= _STOPPED_FROM:
            worst = trial.counted[shares.index(max(shares))]
            periods = f"{max(shares):.0%} of the periods of {worst.metrics['quota_cores']:g} cores"
            texts.append(f"{describe_configuration(trial.factors)} ({periods})")
    return texts


def other_cores(record: RunRecord) -> float:
    """How many cores other programs computed with in a run, on average, and took from it; 0 where they hardly did."""
    metrics = record.metrics
    if not {"busy_cores", "idle_cores", "cpu_cores", "total_s"} <= metrics.keys():
        return 0.0
    cores = metrics["busy_cores"] - metrics["cpu_cores"]
    is_idle = metrics["idle_cores"] > _IDLE * (metrics["idle_cores"] + metrics["busy_cores"])
    if is_idle or cores < _CORES or cores * metrics["total_s"] < _CPU_S:
        return 0.0
    return cores


def describe_other_work(trials: Sequence[Trial]) -> list[str]:
    """`batch_per_rank=64 (0.9 cores in 2 of 5 runs)` of each trial with runs that other programs computed beside."""
    texts = []
    for trial in trials:
        cores = [found for record in trial.timed if (found := other_cores(record))]
        if cores:
            count = f"{max(cores):.1f} cores in {len(cores)} of {len(trial.timed)} runs"
            name = describe_configuration(trial.factors)
            if len(trial.factors) > _MOST_FACTORS:
                name = name_of_change(trial, trial.factors)
            texts.append(f"{name} ({count})")
    return texts
