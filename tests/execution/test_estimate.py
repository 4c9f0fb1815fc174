from __future__ import annotations

from dmls_ray.config.grid import Plan
from dmls_ray.config.until import Until
from dmls_ray.execution.estimate import Durations, describe_estimate, describe_further_blocks
from dmls_ray.execution.planning import make_plan
from dmls_ray.records.model import RunRecord
from tests.records.test_model import record

PLAN = make_plan({"batch_per_rank": [16, 32]}, repeats=2)


def test_a_trial_that_was_measured_is_expected_to_take_its_median() -> None:
    run = PLAN.runs[0]
    records = [
        record(trial_id=run.trial_id, metrics={"total_s": seconds, "overhead_s": 0.5}) for seconds in (1.0, 2.0, 9.0)
    ]
    records.append(record(trial_id="other", metrics={"total_s": 100.0}))
    assert Durations(records).expected_s(run.trial_id) == 2.5


def test_a_trial_that_was_not_is_expected_to_take_what_others_did() -> None:
    assert Durations([record(trial_id="other", metrics={"total_s": 4.0})]).expected_s(PLAN.runs[0].trial_id) == 4.0
    assert Durations([]).expected_s(PLAN.runs[0].trial_id) is None


def test_the_estimate_says_how_it_is_known() -> None:
    measured = [record(trial_id=run.trial_id, metrics={"total_s": 1.0}) for run in PLAN.runs]
    assert describe_estimate(PLAN, PLAN.runs, measured) == "About 19 s, start-up included, by the 4 runs measured here."
    assert describe_estimate(PLAN, PLAN.runs, []).startswith("A guess of ")
    unknown = make_plan({"batch_per_rank": 16, "dataset": "mine:data"}, repeats=1)
    assert describe_estimate(unknown, unknown.runs, []).endswith("no estimate.")


BOTH = make_plan({"batch_per_rank": [16, 32]}, repeats=30)
ADDED = make_plan({"batch_per_rank": [16, 32, 64]}, repeats=30)


def measured_runs(plan: Plan, blocks: int, *, total_s: float = 4.0) -> list[RunRecord]:
    return [
        record(
            run_id=run.run_id, trial_id=run.trial_id, repeat=run.repeat, metrics={"total_s": total_s, "overhead_s": 0.0}
        )
        for run in plan.runs
        if run.repeat < blocks
    ]


def test_what_a_folder_has_spent_of_the_budget_is_not_promised_again() -> None:
    # Two blocks of 8 s are spent and three are pending, of 60 s.
    pending = [run for run in BOTH.runs if 5 <= run.repeat < 8]
    text = describe_further_blocks(BOTH, pending, measured_runs(BOTH, 5), Until(budget=60.0))
    assert text.startswith("Then up to 2 more blocks and 16 s of them")
    text = describe_further_blocks(BOTH, pending, measured_runs(BOTH, 5), Until(budget=45.0))
    assert text == "Then no more blocks follow: --budget 45 has no time for them."


def test_a_trial_that_is_added_has_its_time_of_the_budget() -> None:
    known = {run.trial_id for run in BOTH.runs}
    pending = [run for run in ADDED.runs if run.trial_id not in known and run.repeat < 3]
    text = describe_further_blocks(ADDED, pending, measured_runs(BOTH, 8), Until(budget=60.0))
    assert text.startswith("Then up to 5 more blocks and 60 s of them")


def test_before_any_run_all_of_the_budget_may_be_used() -> None:
    pending = [run for run in BOTH.runs if run.repeat < 3]
    assert describe_further_blocks(BOTH, pending, [], Until(budget=60.0)).startswith(
        "Then up to 27 more blocks and 60 s of them"
    )


def test_runs_that_are_made_again_are_not_counted_twice() -> None:
    pending = [run for run in BOTH.runs if run.repeat < 8]
    text = describe_further_blocks(BOTH, pending, measured_runs(BOTH, 8), Until(budget=60.0))
    assert text.startswith("Then up to 2 more blocks and 16 s of them")  # 5 blocks of 8 s come first


def test_without_a_budget_the_number_of_repeats_alone_ends_the_sweep() -> None:
    pending = [run for run in BOTH.runs if 5 <= run.repeat < 8]
    text = describe_further_blocks(BOTH, pending, measured_runs(BOTH, 5), Until(budget=None))
    assert text.startswith("Then up to 22 more blocks and 2 min 56 s of them")
    last = [run for run in BOTH.runs if run.repeat == 29]
    text = describe_further_blocks(BOTH, last, measured_runs(BOTH, 29), Until(budget=None))
    assert text == "No more than 30 blocks are run (--max-repeats)."
