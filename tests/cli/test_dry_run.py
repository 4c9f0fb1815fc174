from __future__ import annotations

from dmls_ray.cli.dry_run import Durations, describe_estimate
from dmls_ray.execution.planning import make_plan
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
    assert describe_estimate(PLAN.runs, measured) == "About 19 s, start-up included, by the 4 runs measured here."
    assert describe_estimate(PLAN.runs, []) == "No run was measured here yet: no estimate."
