from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle

import pytest

from dmls_ray.analysis.stats.time_to_target import time_to_target
from dmls_ray.records.model import EpochRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult
from dmls_ray.util.errors import StoreError
from dmls_ray.workloads.classification.config import DEFAULTS


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
    written.take_results([rank(0, epochs=[{"epoch": 1, "train_loss": 1.5}]), rank(1)])
    assert RunRecord.from_dict(json.loads(json.dumps(written.to_dict(), allow_nan=False))) == written


def test_a_picture_that_a_function_returned_is_a_field_of_the_record_and_no_measure() -> None:
    written = record(machine={"cores": 2}, git={"commit": "c"})
    written.take_results([rank(0, run={"returned": {"bits": 2.0, "picture": "/9j/AAA="}})])
    assert (written.picture, written.measures) == ("/9j/AAA=", {"bits": 2.0})
    for read in (RunRecord.from_dict(written.to_dict()), RunRecord.from_json(line(written))):
        assert read.picture == "/9j/AAA="
    written.take_results([rank(0, run={"returned": {"picture": None}})])
    assert (written.picture, written.measures) == ("", {"bits": 2.0})


def test_an_epochs_value_of_that_name_is_a_measure_as_any() -> None:
    written = record()
    written.take_results([rank(0, run={"epochs": [{"epoch": 1, "measures": {"picture": 1.5}}], "returned": {}})])
    assert (written.picture, written.measures) == ("", {"picture": 1.5})


@pytest.mark.parametrize("picture", ["/9j/AAA", "R0lGODlh", 3, "/9j/" + "A" * 65_536])
def test_a_record_whose_picture_is_no_small_jpeg_is_refused(picture: object) -> None:
    with pytest.raises(ValueError, match="picture (is|has)"):
        RunRecord.from_dict({**record().to_dict(), "picture": picture})


def test_a_record_that_was_read_can_be_written_copied_and_changed_before_its_ranks_were_asked_for() -> None:
    written = record()
    written.take_results([rank(0), rank(1)])

    def read() -> RunRecord:
        return RunRecord.from_dict(written.to_dict())

    assert read().to_dict() == written.to_dict()
    assert copy.deepcopy(read()) == pickle.loads(pickle.dumps(read())) == dataclasses.replace(read()) == written
    changed = read()
    changed.ranks.pop()
    assert [len(item.ranks) for item in (changed, written)] == [1, 2]
    assert len(changed.epochs) == 2
    with pytest.raises(AttributeError, match="no invented"):
        changed.invented  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize("nested", [{"epochs": [{}]}, {"ranks": [{"pid": 1}]}, {"epochs": [3]}, {"ranks": 3}])
def test_epochs_and_ranks_that_are_none_are_refused_when_the_record_is_read(nested: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError)):
        RunRecord.from_dict({**record().to_dict(), **nested})


def line(written: RunRecord, *, compact: bool = True, sort: bool = False) -> bytes:
    separators = (",", ":") if compact else (", ", ": ")
    return (json.dumps(written.to_dict(), separators=separators, sort_keys=sort) + "\n").encode()


@pytest.mark.parametrize("shape", [{}, {"compact": False}, {"sort": True}])
@pytest.mark.parametrize(
    "config", [{"epochs": 2}, {"train": "a:b", "epochs": [1, 2]}, {"text": ',"epochs":[{}],"ranks":[]}'}]
)
def test_a_line_is_read_whoever_wrote_it_and_whatever_looks_like_epochs_in_it(
    config: dict[str, object], shape: dict[str, bool]
) -> None:
    written = record(config=config, git={"commit": "c"})
    written.take_results([rank(0, epochs=[{"epoch": 1, "train_loss": 1.5}]), rank(1)])
    shared: list[dict[str, object]] = []
    assert RunRecord.from_json(line(written, **shape), shared.append) == written
    assert shared[0]["config"] == config


def test_of_a_line_of_this_version_epochs_and_ranks_are_not_read_before_they_are_asked_for() -> None:
    assert [item.name for item in dataclasses.fields(RunRecord)][-3:] == ["git", "epochs", "ranks"]
    written = record()
    written.take_results([rank(0)])
    read = RunRecord.from_json(line(written).replace(b'"ranks":[{"rank":0', b'"ranks":[{"rank":oh'))
    assert read.run_id == "a-0"
    with pytest.raises(StoreError, match="epochs and ranks of run a-0 cannot be read .* remove its line"):
        read.ranks  # noqa: B018


def test_a_line_that_lacks_ranks_or_has_more_than_them_is_not_misread() -> None:
    written = record(git={"commit": "c"})
    written.take_results([rank(0)])
    without = line(written).partition(b',"ranks":')[0] + b"}"
    assert len(RunRecord.from_json(without).epochs) == 2
    more = line(written).rstrip()[:-1] + b',"later":[1]}'
    with pytest.raises(StoreError, match="epochs, ranks, later in their place"):
        RunRecord.from_json(more).ranks  # noqa: B018


def test_a_number_that_is_not_finite_becomes_null() -> None:
    assert record(train_loss=math.nan, epoch_s=math.inf).to_dict()["train_loss"] is None


def test_a_time_of_an_epoch_that_was_not_finite_is_none_taken_when_it_is_read_again() -> None:
    written = record()
    own = epoch(1, train_s=math.nan, eval_s=math.inf, train_loss=math.nan)
    written.take_results([rank(0, pid=None, run={"epochs": [own, epoch(2)]})])
    read = RunRecord.from_json(line(written))
    assert [(item.warmup_s, item.train_s, item.eval_s) for item in read.epochs] == [(1.0, 0.0, 0.0), (1.0, 2.0, 0.5)]
    assert read.epochs[0].train_loss is None
    assert read.ranks[0].pid == 0
    reached = time_to_target([read], 0.2)
    assert reached is not None
    assert reached.median == 1.0


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


def run_of(epochs: list[tuple[float, float]], **changes: object) -> RunRecord:
    record = RunRecord(run_id="a-0", trial_id="a", repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK)
    for name, value in changes.items():
        setattr(record, name, value)
    record.take_epochs(
        [
            EpochRecord(epoch=number, train_loss=train, test_loss=test, train_accuracy=0.9, test_accuracy=0.1 * number)
            for number, (train, test) in enumerate(epochs, start=1)
        ]
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
def test_overfitting_began_after_the_least_test_loss_if_only_the_train_loss_went_on_falling(
    epochs: list[tuple[float, float]], began: int | None
) -> None:
    record = run_of(epochs)
    assert record.overfit_epoch == began
    assert record.loss_gap == epochs[-1][1] - epochs[-1][0]
    assert record.accuracy_gap == pytest.approx(0.9 - 0.1 * len(epochs))


def test_a_run_that_was_stopped_early_has_the_figures_of_its_best_epoch() -> None:
    record = run_of([(3, 3), (2, 1), (1, 2)], best_epoch=2)
    assert (record.train_loss, record.test_loss, record.test_accuracy) == (2, 1, 0.2)


def test_a_column_of_the_record_never_hides_a_field_of_the_configuration() -> None:
    shared = {field.name for field in dataclasses.fields(RunRecord)} & set(DEFAULTS) - {"epochs"}  # rows of their own
    # The first three stand beside what was asked for as resolved_...; the seed of a run as run_seed.
    assert shared == {"device", "backend", "warmup_steps", "seed"}


def test_with_early_stopping_the_gap_is_that_of_the_epoch_that_stays() -> None:
    record = run_of([(3, 3), (2, 2.5), (1, 4)])
    record.best_epoch = 2
    record.take_epochs(record.epochs)
    assert (record.train_loss, record.test_loss, record.loss_gap) == (2, 2.5, 0.5)
    assert record.train_accuracy is not None
    assert record.test_accuracy is not None
    assert record.accuracy_gap == record.train_accuracy - record.test_accuracy
