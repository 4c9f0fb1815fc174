from __future__ import annotations

import copy
import json
import math
import pickle

import pytest

from dmls_ray.records.aggregate import take_epochs, take_results
from dmls_ray.records.codec import SharedObjects
from dmls_ray.records.epoch_and_rank import EpochRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult
from dmls_ray.util.errors import StoreError


def record(**changes: object) -> RunRecord:
    values = {"run_id": "a-0", "trial_id": "a", "repeat": 0, "order": 0, "order_seed": 0, "seed": 0}
    return RunRecord(**{**values, "outcome": Outcome.OK, **changes})  # type: ignore[arg-type]


def epoch(number: int, **changes: object) -> dict[str, object]:
    values = {"epoch": number, "train_loss": 1.0, "train_accuracy": 0.5, "test_loss": 2.0, "test_accuracy": 0.25}
    return values | {"train_s": 2.0, "warmup_s": 1.0, "eval_s": 0.5, "images": 100} | changes


def rank(number: int, **changes: object) -> RankResult:
    run = {"train_samples": 120, "test_samples": 40, "steps": 8, "epochs": [epoch(1), epoch(2, train_s=3.0)]}
    return RankResult.of({"rank": number, "total_s": 9.0 + number, "peak_mem_mib": 100.0, "run": run} | changes)


def test_a_record_survives_json() -> None:
    written = record(config={"epochs": 2}, machine={"cores": 2})
    take_results(written, [rank(0, epochs=[{"epoch": 1, "train_loss": 1.5}]), rank(1)])
    assert from_dict(written.to_dict()) == written


def test_of_what_the_ranks_return_numbers_are_metrics_and_all_else_are_fields_or_facts() -> None:
    written = record()
    run = {"bits": 2.0, "picture": "/9j/AAA=", "device": "cpu", "note": "x", "vnni": False, "none": None}
    take_results(written, [rank(0, run=run)])
    assert (written.picture, written.device, written.metrics["bits"]) == ("/9j/AAA=", "cpu", 2.0)
    assert written.facts == {"note": "x", "vnni": False}
    assert from_dict(written.to_dict()) == written


def test_nothing_that_is_a_default_or_unknown_is_written() -> None:
    assert record().to_dict().keys() == {
        "schema", "run_id", "trial_id", "repeat", "order", "order_seed", "seed", "outcome"
    }  # fmt: skip
    written = record()
    take_results(written, [rank(0, run={"epochs": [{"epoch": 1, "train_loss": math.nan, "test_loss": None}]})])
    assert written.to_dict()["epochs"] == [{"epoch": 1}]


@pytest.mark.parametrize("picture", ["R0lGODlh", 3, "/9j/" + "A" * 65_536])
def test_a_record_whose_picture_is_not_a_small_jpeg_is_refused(picture: object) -> None:
    with pytest.raises(ValueError, match="picture"):
        from_dict({**record().to_dict(), "picture": picture})


def test_a_record_can_be_written_copied_and_changed_before_its_ranks_are_decoded() -> None:
    written = record()
    take_results(written, [rank(0), rank(1)])

    def read() -> RunRecord:
        return from_dict(written.to_dict())

    assert read().to_dict() == written.to_dict()
    assert copy.deepcopy(read()) == pickle.loads(pickle.dumps(read())) == read().replace() == written
    changed = read()
    changed.ranks.pop()
    assert [len(item.ranks) for item in (changed, written)] == [1, 2]
    assert len(changed.epochs) == 2
    with pytest.raises(AttributeError, match="no attribute 'invented'"):
        changed.invented  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize("nested", [{"epochs": [{}]}, {"ranks": [{"pid": 1}]}, {"epochs": [3]}, {"ranks": 3}])
def test_invalid_epochs_and_ranks_of_a_dict_are_refused(nested: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="epochs and ranks of run a-0 cannot be read"):
        from_dict({**record().to_dict(), **nested})


def from_dict(values: dict[str, object]) -> RunRecord:
    read = RunRecord.from_json(json.dumps(values).encode())
    _ = read.epochs, read.ranks
    return read


def json_line(written: RunRecord, *, compact: bool = True, sort: bool = False) -> bytes:
    """A line of JSON from another writer."""
    separators = (",", ":") if compact else (", ", ": ")
    return (json.dumps(written.to_dict(), separators=separators, sort_keys=sort) + "\n").encode()


@pytest.mark.parametrize("layout", [{}, {"compact": False}, {"sort": True}])
@pytest.mark.parametrize(
    "config", [{"epochs": 2}, {"train": "a:b", "epochs": [1, 2]}, {"text": ',"epochs":[{}],"ranks":[]}'}]
)
def test_a_line_is_read_in_any_layout_of_json(config: dict[str, object], layout: dict[str, bool]) -> None:
    written = record(config=config, git={"commit": "c"})
    take_results(written, [rank(0, epochs=[{"epoch": 1, "train_loss": 1.5}]), rank(1)])
    assert RunRecord.from_json(json_line(written, **layout)) == written


def test_records_with_equal_configurations_share_one_dict() -> None:
    shared = SharedObjects()
    first, second, other = (
        RunRecord.from_json(record(config={"lr": lr}, machine={"cores": 2}).to_json(), shared) for lr in (1, 1, 2)
    )
    assert first.config is second.config
    assert first.config != other.config
    assert first.machine is second.machine is other.machine


def test_the_values_of_epochs_and_ranks_are_checked_at_their_first_use() -> None:
    written = record()
    take_results(written, [rank(0)])
    read = RunRecord.from_json(written.to_json().replace(b'"ranks":[{"rank":0', b'"ranks":[{"rank":"0"'))
    assert (read.run_id, len(read.epochs)) == ("a-0", 2)
    with pytest.raises(StoreError, match="epochs and ranks of run a-0 cannot be read .* remove its line"):
        read.ranks  # noqa: B018


def test_a_line_without_ranks_and_a_line_with_later_keys_are_read() -> None:
    written = record(git={"commit": "c"})
    take_results(written, [rank(0)])
    without = written.to_json().partition(b',"ranks":')[0] + b"}"
    assert len(RunRecord.from_json(without).epochs) == 2
    assert RunRecord.from_json(without).ranks == []
    later = written.to_json()[:-1] + b',"later":[1]}'
    assert RunRecord.from_json(later) == written


def test_whole_numbers_of_more_than_64_bits_are_refused() -> None:
    for changes in ({"metrics": {"steps": 2**64}}, {"order": -(2**70)}, {"metrics": {"big": 10**400}}):
        with pytest.raises(ValueError, match="9223372036854775807|-9223372036854775808|out of range"):
            from_dict({**record().to_dict(), **changes})


def test_what_a_function_did_not_measure_of_an_epoch_is_unknown_and_not_zero() -> None:
    written = record()
    take_results(written, [rank(0, run={"epochs": [{"epoch": 1, "train_loss": 0.5}]})])
    assert not written.metrics.keys() & {"train_s", "eval_s", "images_per_s"}
    assert written.metrics["train_loss"] == 0.5


def test_times_and_memory_of_a_run_are_the_largest_of_its_ranks() -> None:
    filled = record()
    take_results(filled, [rank(0, peak_mem_mib=300.0), rank(1)])
    assert (filled.metrics["total_s"], filled.metrics["peak_mem_mib"]) == (10.0, 300.0)


def test_a_rate_over_all_epochs_is_the_ratio_of_the_sums() -> None:
    filled = record()
    take_results(filled, [rank(0)])
    assert filled.metrics.get("train_s") == 5.0
    assert filled.metrics.get("images_per_s") == pytest.approx(200 / 5)
    assert filled.metrics.get("epoch_s") == pytest.approx(120 / 40)


def test_the_run_has_the_metrics_of_its_last_epoch() -> None:
    filled = record()
    run = {"train_samples": 120, "epochs": [epoch(1), epoch(2, test_accuracy=0.75)]}
    take_results(filled, [rank(0, run=run)])
    assert filled.metrics.get("test_accuracy") == 0.75


def test_a_run_without_results_has_no_rates_and_no_ranks() -> None:
    cut = record(outcome=Outcome.KILLED)
    take_results(cut, [])
    assert cut.metrics.get("images_per_s") is None
    assert cut.ranks == []


def test_unknown_keys_are_ignored() -> None:
    assert from_dict({**record().to_dict(), "invented": 1}) == record()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_failed_and_skipped_runs_are_run_again_and_answers_are_not(outcome: Outcome) -> None:
    assert outcome.is_final() is (outcome.value in {"ok", "oom", "diverged"})
    assert outcome.is_answer() is (outcome.value in {"ok", "oom", "diverged", "skipped"})


def run_of(epochs: list[tuple[float, float]], **changes: float) -> RunRecord:
    record = RunRecord(run_id="a-0", trial_id="a", repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK)
    record.metrics |= changes
    take_epochs(
        record,
        [
            EpochRecord(
                epoch=number,
                metrics={"train_loss": train, "test_loss": test, "train_accuracy": 0.9, "test_accuracy": 0.1 * number},
            )
            for number, (train, test) in enumerate(epochs, start=1)
        ],
    )
    return record


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
    record = run_of(epochs)
    assert record.metrics.get("overfit_epoch") == began
    assert record.metrics["loss_gap"] == epochs[-1][1] - epochs[-1][0]
    assert record.metrics["accuracy_gap"] == pytest.approx(0.9 - 0.1 * len(epochs))


def test_a_run_that_stopped_early_has_the_metrics_of_its_best_epoch() -> None:
    record = run_of([(3, 3), (2, 1), (1, 2)], best_epoch=2)
    assert (record.metrics["train_loss"], record.metrics["test_loss"], record.metrics["test_accuracy"]) == (2, 1, 0.2)


def test_with_early_stopping_the_gap_is_that_of_the_best_epoch() -> None:
    record = run_of([(3, 3), (2, 2.5), (1, 4)])
    record.metrics["best_epoch"] = 2
    take_epochs(record, record.epochs)
    assert (record.metrics["train_loss"], record.metrics["test_loss"], record.metrics["loss_gap"]) == (2, 2.5, 0.5)
    assert record.metrics.get("train_accuracy") is not None
    assert record.metrics.get("test_accuracy") is not None
    assert record.metrics["accuracy_gap"] == record.metrics["train_accuracy"] - record.metrics["test_accuracy"]
