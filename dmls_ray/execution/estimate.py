"""How long runs will take: by measured runs, or by the estimate of the workload."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.analysis.summary.phrases import count_noun
from dmls_ray.analysis.table.stage import seconds_of_further_blocks
from dmls_ray.config.grid import Plan, Run
from dmls_ray.config.until import Until
from dmls_ray.records.durations import Durations
from dmls_ray.records.model import RunRecord
from dmls_ray.util.quantities import duration
from dmls_ray.workloads.registry import workload_of

START_UP_S = 15.0
"""Seconds until Ray, the worker group and PyTorch have started, on two cores."""


def describe_estimate(plan: Plan, pending: Sequence[Run], records: Sequence[RunRecord]) -> str:
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


def describe_further_blocks(plan: Plan, pending: Sequence[Run], records: Sequence[RunRecord], until: Until) -> str:
    """How many blocks may follow the pending ones, how long they may take, and what they are for."""
    blocks = 1 + max(run.repeat for run in pending)
    if blocks >= plan.repeats:
        return f"No more than {plan.repeats} blocks are run (--max-repeats)."
    time = ""
    if until.budget is not None:
        durations, trials = Durations(records), {run.trial_id for run in plan.runs}
        planned = [record for record in records if record.trial_id in trials]
        further = [durations.expected_s(run.trial_id) or 0.0 for run in pending if run.repeat >= FIRST_LOOK]
        left = until.budget - seconds_of_further_blocks(planned) - sum(further)
        if left < sum(durations.expected_s(trial) or 0.0 for trial in trials) or left <= 0:
            return f"Then no more blocks follow: --budget {until.budget:g} has no time for them."
        time = f" and {duration(left)}"
    return (
        f"Then up to {count_noun(plan.repeats - blocks, 'more block')}{time} of them, until each comparison of the "
        f"answer is decided, or known to {until.within:.3g}."
    )
