from __future__ import annotations

import json
import math

import pytest

from dmls_ray.record import Outcome, RunRecord


def record(**changes: object) -> RunRecord:
    values = {"run_id": "a-0", "trial_id": "a", "repeat": 0, "order": 0, "order_seed": 0, "seed": 0}
    return RunRecord(**{**values, "outcome": Outcome.OK, **changes})  # type: ignore[arg-type]


def epoch(number: int, **changes: object) -> dict[str, object]:
    values = {"epoch": number, "train_loss": 1.0, "train_accuracy": 0.5, "test_loss": 2.0, "test_accuracy": 0.25}
    return values | {"train_s": 2.0, "warmup_s": 1.0, "eval_s": 0.5, "images": 100} | changes


def rank(number: int, **changes: object) -> dict[str, object]:
    run = {"train_samples": 120, "test_samples": 40, "steps": 8, "epochs": [epoch(1), epoch(2, train_s=3.0)]}
    return {"rank": number, "total_s": 9.0 + number, "peak_mem_mib": 100.0, "outcome": "ok", "run": run} | changes


def test_a_record_survives_json() -> None:
    written = record(config={"epochs": 2}, machine={"cores": 2})
    written.take_results([rank(0, epochs=[{"epoch": 1, "train_loss": 1.5}]), rank(1)])
    assert RunRecord.from_dict(json.loads(json.dumps(written.to_dict(), allow_nan=False))) == written


def test_a_number_that_is_not_finite_becomes_null() -> None:
    assert record(train_loss=math.nan, epoch_s=math.inf).to_dict()["train_loss"] is None


def test_times_and_memory_are_those_of_the_rank_that_took_most() -> None:
    filled = record()
    filled.take_results([rank(0, peak_mem_mib=300.0), rank(1)])
    assert (filled.total_s, filled.peak_mem_mib) == (10.0, 300.0)


def test_a_rate_over_all_epochs_is_the_ratio_of_the_sums() -> None:
    filled = record()
    filled.take_results([rank(0)])
    assert filled.train_s == 5.0
    assert filled.images_per_s == pytest.approx(200 / 5)
    assert filled.epoch_s == pytest.approx(120 / 40)


def test_the_run_has_the_metrics_of_its_last_epoch() -> None:
    filled = record()
    run = {"train_samples": 120, "epochs": [epoch(1), epoch(2, test_accuracy=0.75)]}
    filled.take_results([rank(0, run=run)])
    assert filled.test_accuracy == 0.75


def test_a_run_of_which_no_rank_returned_keeps_what_is_known() -> None:
    cut = record(outcome=Outcome.KILLED)
    cut.take_results([])
    assert cut.images_per_s is None
    assert cut.ranks == []


def test_keys_of_a_newer_minor_version_are_left_out() -> None:
    assert RunRecord.from_dict({**record().to_dict(), "invented": 1}) == record()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_failed_or_was_skipped_is_asked_for_again_and_an_answer_is_not(outcome: Outcome) -> None:
    assert outcome.is_final() is (outcome.value in {"ok", "oom", "diverged"})
    assert outcome.is_answer() is (outcome.value in {"ok", "oom", "diverged", "skipped"})
