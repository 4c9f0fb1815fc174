"""How long runs will take: by measured runs, or by the estimate of the workload."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.config.grid import Run
from dmls_ray.records.durations import Durations
from dmls_ray.records.model import RunRecord
from dmls_ray.workloads.registry import workload_of

START_UP_S = 15.0
"""Seconds until Ray, the worker group and PyTorch have started, on two cores."""


def describe_estimate(pending: Sequence[Run], records: Sequence[RunRecord]) -> str:
    """How long the pending runs, of which there are some, will take, in a sentence that says how that is known."""
    feasible = [run for run in pending if not run.skip]
    if not feasible:
        return "Every run that is missing is skipped."
    durations = Durations(records)
    measured = [durations.expected_s(run.trial_id) for run in feasible]
    if None not in measured:
        total = START_UP_S + sum(value for value in measured if value is not None)
        return f"About {total:.0f} s, start-up included, by the {len(records)} runs measured here."
    guesses = [None if run.config is None else workload_of(run.values).estimate_s(run.config) for run in feasible]
    if None in guesses:
        return "No run was measured here yet and it is not known how much data there is: no estimate."
    total = START_UP_S + sum(value for value in guesses if value is not None)
    return (
        f"A guess of {total:.0f} s, start-up included: no run was measured here yet, so a small model's steps on a CPU "
        "are assumed."
    )
