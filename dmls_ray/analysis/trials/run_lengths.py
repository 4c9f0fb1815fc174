"""How many optimizer steps runs made, and whether their whole durations, and what they printed last, compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dmls_ray.records.model import RunRecord

if TYPE_CHECKING:
    from dmls_ray.analysis.trials.trial import Trial

STEP_MS = "step_ms_mean"
"""Name of the time of a step, by which trials are compared whose samples are not known."""
_STEPS = ("steps_made", "steps", "counted_steps")
"""Metrics that say how many steps a run made; the later ones of records that lack the first."""


def steps_of(record: RunRecord) -> float:
    """The optimizer steps of a run; 0 where it made none."""
    return next((record.metrics[name] for name in _STEPS if name in record.metrics), 0)


def are_equally_long(records: Iterable[RunRecord]) -> bool:
    """Whether all of some runs made the same number of steps, or none."""
    return len(set(map(steps_of, records))) < 2


def were_ended_apart(records: Sequence[RunRecord]) -> bool:
    """Whether runs were ended after different numbers of steps: neither their durations nor last values compare."""
    return any(record.was_ended for record in records) and not are_equally_long(records)


def durations_of(trials: Sequence[Trial]) -> list[str]:
    """The times by which trials without a common rate are compared: of a step, and of a run.

    Whole runs compare where none was ended at another step than the others; those that all ended after a given number
    of steps, by their steps alone.
    """
    records = [record for trial in trials for record in trial.timed]
    names = [name for name in (STEP_MS, "total_s") if records and all(trial.by_block(name) for trial in trials)]
    if were_ended_apart(records) or (STEP_MS in names and any(record.was_ended for record in records)):
        names = [name for name in names if name == STEP_MS]
    return names
