"""How many optimizer steps runs made, and whether their whole durations, and what they printed last, compare."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.records.model import RunRecord

STEP_MS = "step_ms_mean"
"""Name of the time of a step, by which trials are compared whose samples are not known."""
_STEPS = ("steps_made", "steps", "counted_steps")
"""Metrics that say how many steps a run made; the later ones of records that lack the first."""


def steps_of(record: RunRecord) -> float:
    """The optimizer steps of a run; 0 where it made none."""
    return next((record.metrics[name] for name in _STEPS if name in record.metrics), 0)


def were_ended_apart(records: Sequence[RunRecord]) -> bool:
    """Whether runs were ended after different numbers of steps: neither their durations nor last values compare."""
    return any(record.was_ended for record in records) and len({steps_of(record) for record in records}) > 1
