from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dmls_ray.records.aggregate import take_epochs, take_results
from dmls_ray.records.codec import SharedObjects
from dmls_ray.records.model import Durations, EpochRecord, RunRecord, distinct_names
from dmls_ray.records.outcome import Outcome, outcome_counts
from dmls_ray.records.run_events import RankResult, RunResult
from dmls_ray.util.errors import StoreError
from tests.run_results import run_of


def record(**changes: object) -> RunRecord:
    values = {"run_id": "a-0", "trial_id": "a", "repeat": 0, "order": 0, "order_seed": 0, "seed": 0}
    return RunRecord(**{**values, "outcome": Outcome.OK, **changes})  # type: ignore[arg-type]


def epoch(number: int, **changes: object) -> dict[str, object]:
    values = {"epoch": number, "train_loss": 1.0, "train_accuracy": 0.5, "test_loss": 2.0, "test_accuracy": 0.25}
    return values | {"train_s": 2.0, "warmup_s": 1.0, "eval_s": 0.5, "images": 100} | changes


RUN = {"train_samples": 120, "test_samples": 40, "steps": 8, "epochs": [epoch(1), epoch(2, train_s=3.0)]}


def rank(number: int, run: Mapping[str, Any] = RUN, **metrics: float) -> RankResult:
    measured = {"total_s": 9.0 + number, "peak_mem_mib": 100.0, **metrics}
    return RankResult(rank=number, metrics=measured, run=run_of(run))


def recorded(*results: RankResult, **changes: object) -> RunRecord:
    """The record of a run whose ranks returned this."""
    written = record(**changes)
    take_results(written, results)
    return written


def from_dict(values: dict[str, object]) -> RunRecord:
    read = RunRecord.from_json(json.dumps(values).encode())
    _ = read.epochs, read.ranks
    return read


@pytest.mark.parametrize("layout", [{}, {"separators": (",", ":")}, {"sort_keys": True}])
@pytest.mark.parametrize(
    "config", [{"epochs": 2}, {"train": "a:b", "epochs": [1, 2]}, {"text": ',"epochs":[{}],"ranks":[]}'}]
)
def test_a_record_survives_json_in_any_layout(config: dict[str, object], layout: dict[str, Any]) -> None:
    written = recorded(rank(0), rank(1), config=config, machine={"cores": 2}, git={"commit": "c"})
    assert RunRecord.from_json(written.to_json()) == written
    assert RunRecord.from_json(json.dumps(written.to_dict(), **layout).encode()) == written


def test_of_what_the_ranks_return_numbers_are_metrics_and_all_else_are_fields_or_facts() -> None:
    run = {"bits": 2.0, "picture": "/9j/AAA=", "note": "x"}
    written = recorded(RankResult(run=RunResult(device="cpu", facts={"vnni": False}, reported=run)))
    assert (written.picture, written.device, written.metrics["bits"]) == ("/9j/AAA=", "cpu", 2.0)
    assert written.facts == {"note": "x", "vnni": False}
    assert from_dict(written.to_dict()) == written


def test_nothing_that_is_a_default_or_unknown_is_written() -> None:
    assert record().to_dict().keys() == {
        "schema", "run_id", "trial_id", "repeat", "order", "order_seed", "seed", "outcome"
    }  # fmt: skip
    written = recorded(rank(0, run={"epochs": [{"epoch": 1, "train_loss": math.nan, "test_loss": None}]}))
    assert written.to_dict()["epochs"] == [{"epoch": 1}]


def test_a_record_can_be_written_copied_and_changed_before_its_ranks_are_decoded() -> None:
    written = recorded(rank(0), rank(1))

    def read() -> RunRecord:
        return RunRecord.from_json(written.to_json())

    assert read().to_dict() == written.to_dict()
    assert copy.deepcopy(read()) == pickle.loads(pickle.dumps(read())) == read().replace() == written
    changed = read()
    changed.ranks.pop()
    assert [len(item.ranks) for item in (changed, written)] == [1, 2]


@pytest.mark.parametrize(
    "nested", [{"epochs": [{}]}, {"ranks": [{"pid": 1}]}, {"ranks": [{"rank": "0"}]}, {"epochs": [3]}, {"ranks": 3}]
)
def test_the_values_of_epochs_and_ranks_are_checked_at_their_first_use(nested: dict[str, object]) -> None:
    read = RunRecord.from_json(json.dumps({**record().to_dict(), **nested}).encode())
    assert read.run_id == "a-0"
    with pytest.raises(StoreError, match="epochs and ranks of run a-0 cannot be read .* remove its line"):
        _ = read.epochs, read.ranks


def test_records_with_equal_configurations_share_one_dict() -> None:
    shared = SharedObjects()
    first, second, other = (
        RunRecord.from_json(record(config={"lr": lr}, machine={"cores": 2}).to_json(), shared) for lr in (1, 1, 2)
    )
    assert first.config is second.config
    assert first.config != other.config
    assert first.machine is second.machine is other.machine


def test_a_line_without_ranks_and_a_line_with_later_keys_are_read() -> None:
    written = recorded(rank(0))
    values = written.to_dict()
    assert from_dict({**values, "later": [1]}) == written
    del values["ranks"]
    assert (len(from_dict(values).epochs), from_dict(values).ranks) == (2, [])


@pytest.mark.parametrize("changes", [{"metrics": {"steps": 2**64}}, {"order": -(2**70)}, {"metrics": {"x": 10**400}}])
def test_whole_numbers_of_more_than_64_bits_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="9223372036854775807|-9223372036854775808|out of range"):
        from_dict({**record().to_dict(), **changes})


def test_the_values_of_a_run_follow_from_its_ranks_and_epochs() -> None:
    run = {"train_samples": 120, "epochs": [epoch(1), epoch(2, train_s=3.0, test_accuracy=0.75)]}
    metrics = recorded(rank(0, peak_mem_mib=300.0, run=run), rank(1)).metrics
    assert (metrics["total_s"], metrics["peak_mem_mib"]) == (10.0, 300.0), "the largest of the ranks"
    assert (metrics["train_s"], metrics["images_per_s"], metrics["epoch_s"]) == (5.0, 200 / 5, 120 / 40), "of the sums"
    assert metrics["test_accuracy"] == 0.75, "of the last epoch"


def test_what_was_not_measured_is_unknown_and_not_zero() -> None:
    metrics = recorded(rank(0, run={"epochs": [{"epoch": 1, "train_loss": 0.5}]})).metrics
    assert not metrics.keys() & {"train_s", "eval_s", "images_per_s"}
    assert metrics["train_loss"] == 0.5
    cut = recorded(outcome=Outcome.KILLED)
    assert (cut.metrics, cut.ranks) == ({}, [])


@pytest.mark.parametrize("outcome", list(Outcome))
def test_failed_and_skipped_runs_are_run_again_and_answers_are_not(outcome: Outcome) -> None:
    assert outcome.is_final() is (outcome.value in {"ok", "oom", "diverged"})
    assert outcome.is_answer() is (outcome.value in {"ok", "oom", "diverged", "skipped"})


def test_outcomes_are_counted_from_the_most_frequent() -> None:
    assert outcome_counts([Outcome.OOM, *[Outcome.OK] * 1200]) == "1,200 ok, 1 oom"
    assert outcome_counts([]) == ""


def metrics_of(epochs: list[tuple[float, float]], **measured: float) -> dict[str, float]:
    """The metrics of a run with these losses in training and test."""
    run = record(metrics=dict(measured))
    made = []
    for number, (train, test) in enumerate(epochs, start=1):
        values = {"train_loss": train, "test_loss": test, "train_accuracy": 0.9, "test_accuracy": 0.1 * number}
        made.append(EpochRecord(epoch=number, metrics=values))
    take_epochs(run, made)
    return run.metrics


@pytest.mark.parametrize(
    ("epochs", "began"),
    [
        ([(3, 3), (2, 2), (1, 2.5), (0.5, 3)], 3),
        ([(3, 3), (2, 2), (1, 1)], None),
        ([(3, 1), (2, 2)], 2),
        ([(2, 2), (2.5, 3)], None),
        ([(1, 1)], None),
        ([(2, 2), (1, 2)], None),
        ([(2, 2), (1, math.inf)], None),
    ],
)
def test_overfitting_starts_after_the_least_test_loss_if_only_the_train_loss_fell_further(
    epochs: list[tuple[float, float]], began: int | None
) -> None:
    metrics = metrics_of(epochs)
    assert metrics.get("overfit_epoch") == began
    assert metrics["loss_gap"] == epochs[-1][1] - epochs[-1][0]
    assert metrics["accuracy_gap"] == pytest.approx(0.9 - 0.1 * len(epochs))


def test_a_run_that_stopped_early_has_the_metrics_of_its_best_epoch() -> None:
    metrics = metrics_of([(3, 3), (2, 2.5), (1, 4)], best_epoch=2)
    assert (metrics["train_loss"], metrics["test_loss"], metrics["loss_gap"]) == (2, 2.5, 0.5)
    assert (metrics["test_accuracy"], metrics["accuracy_gap"]) == (0.2, pytest.approx(0.7))


@pytest.mark.parametrize(
    ("names", "taken", "columns"),
    [
        (["a", "b"], [], ["a", "b"]),
        (["a", "b"], ["b"], ["a", "x_b"]),
        (["a", "x_a"], ["a"], ["x_x_a", "x_a"]),
        (["x_a", "a"], ["a"], ["x_a", "x_x_a"]),
        (["a"], ["a", "x_a"], ["x_x_a"]),
        (["A", "a"], ["a"], ["A", "x_a"]),
    ],
)
def test_a_name_that_is_taken_gets_a_prefix_and_no_two_are_equal(
    names: Sequence[str], taken: Sequence[str], columns: Sequence[str]
) -> None:
    assert distinct_names(names, taken, "x_") == dict(zip(names, columns, strict=True))


def test_a_trial_is_expected_to_take_the_median_of_its_runs_or_else_what_others_did() -> None:
    records = [record(trial_id="ours", metrics={"total_s": seconds, "overhead_s": 0.5}) for seconds in (1.0, 2.0, 9.0)]
    others = [record(trial_id="other", metrics={"total_s": 100.0})]
    assert Durations([*records, *others]).expected_s("ours") == 2.5
    assert Durations(others).expected_s("ours") == 100.0
    assert Durations([]).expected_s("ours") is None
