"""How long runs will take: by measured runs, or by the estimate of the workload."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.findings.stage import Stage
from dmls_ray.analysis.words import count_noun
from dmls_ray.config.grid import Plan, Run
from dmls_ray.config.until import Until
from dmls_ray.records.durations import Durations
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
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
    """How many blocks may follow the pending ones, how long they may take, and what they are for.

    Args:
        plan: the runs, with as many blocks as there may be.
        pending: the runs that come first, of which one is not skipped at least.
        records: the runs of the plan that were measured, of the current version.
        until: until when trials are repeated.
    """
    durations = Durations(records)
    replaced = {run.run_id for run in pending}
    kept = [record for record in records if record.run_id not in replaced]
    expected = [_expected(plan, run, durations) for run in pending if not run.skip]
    stage = Stage.of([*kept, *expected], until).without_those_left_out()
    more = min(stage.most, plan.repeats) - stage.blocks
    if stage.blocks >= plan.repeats:
        return f"No more than {plan.repeats} blocks are run (--max-repeats)."
    if more <= 0:
        return f"Then no more blocks follow: --budget {until.budget:g} has no time for them."
    known_s = more * stage.block_s or until.budget
    time = "" if known_s is None else f" and {duration(known_s)}"
    return (
        f"Then up to {count_noun(more, 'more block')}{time} of them, until each comparison of the answer is decided, "
        f"or known to {until.within:.3g}."
    )


def _expected(plan: Plan, run: Run, durations: Durations) -> RunRecord:
    """A run as it may end: ok, after the time that runs of its trial took."""
    return RunRecord(
        run_id=run.run_id,
        trial_id=run.trial_id,
        repeat=run.repeat,
        order=run.order,
        order_seed=plan.order_seed,
        seed=run.seed,
        outcome=Outcome.OK,
        metrics={"total_s": durations.expected_s(run.trial_id) or 0.0},
    )
