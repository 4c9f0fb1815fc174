"""How many optimizer steps runs made, and whether their whole durations, and what they printed last, compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dmls_ray.records.model import RunRecord

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
