"""By which metrics several trials are compared: their common rate, their durations, their memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from dmls_ray.analysis.metrics import MEMORY_METRICS
from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.trials.run_lengths import STEP_MS, were_ended_apart
from dmls_ray.analysis.trials.trial import RUNS_PER_S, Trial


def common_rate(trials: Iterable[Trial]) -> str:
    """The throughput that all of some trials have; empty where they have none in common."""
    common: list[str] | None = None
    for trial in trials:
        known = [name for name in trial.workload.throughput if trial.by_block(name)]
        common = known if common is None else [name for name in common if name in known]
    return next(iter(common or ()), "")


def speed_metric(*trials: Trial) -> str:
    """The metric of the speed of some trials: their common throughput, else runs per second."""
    return common_rate(trials) or RUNS_PER_S


def speed_against(trial: Trial, base: Trial) -> Contrast | None:
    """The ratio of the speed of a trial to that of a baseline of the same table.

    By the throughput of their workload where both have one, else by runs per second: a rate is not compared with a
    duration. None if no block has a speed of both in one environment.
    """
    return trial.comparisons.against(trial, base, speed_metric(trial, base), is_ratio=True)


def durations_of(trials: Sequence[Trial]) -> list[str]:
    """The times by which trials without a common rate are compared: of a step, and of a run.

    Whole runs compare where none was ended at another step than the others; those that all ended after a given number
    of steps, by their steps alone.
    """
    records = [record for trial in trials for record in trial.timed]
    if not records:
        return []
    names = [name for name in (STEP_MS, "total_s") if all(trial.by_block(name) for trial in trials)]
    if "total_s" not in names:
        return names
    is_by_steps = STEP_MS in names and any(record.was_ended for record in records)
    if is_by_steps or were_ended_apart(records):
        names.remove("total_s")
    return names


def memory_metric(rows: Sequence[Trial]) -> str:
    """The metric by which the memory of these trials is compared; empty if none has any."""
    counts = Counter(name for row in rows for name in MEMORY_METRICS if name in row.estimates)
    return max(MEMORY_METRICS, key=counts.__getitem__) if counts else ""
