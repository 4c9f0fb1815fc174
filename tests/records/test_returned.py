"""What a rank returns is checked where its result is made: each record can be written and read."""

from __future__ import annotations

import decimal
import enum
import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dmls_ray.records.aggregate import take_results
from dmls_ray.records.metrics import Metric
from dmls_ray.records.model import EpochRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import NotPlainError, Reported, plain
from dmls_ray.records.run_events import EpochEnded, RankResult, RunResult
from dmls_ray.training.rank import Emit
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import run_inline

CONFIG = TrialConfig(device="cpu", batch_per_rank=8)
WHAT = "test_returned:result_of.<locals>.train returned"


def result_of(returned: Any, emitted: EpochRecord | None = None, emit: Emit = lambda event: None) -> RankResult:
    def train(config: Any, rank: Any, emit: Emit) -> Any:
        if emitted is not None:
            emit(EpochEnded(epoch=emitted))
        return returned

    return run_inline(CONFIG, train=train, emit=emit)


def record_of(result: RankResult, *metrics: Metric) -> RunRecord:
    record = RunRecord(run_id="a-0", trial_id="a", repeat=0, order=0, order_seed=0, seed=7, outcome=result.outcome)
    take_results(record, [result], metrics)
    return RunRecord.from_json(record.to_json())


def of_run(**values: Any) -> RankResult:
    return RankResult(run=RunResult(**values))


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (None, f"{WHAT} is of type NoneType; give a RankResult"),
        ({"total_s": 1.0}, f"{WHAT} is of type dict; give a RankResult"),
        (RankResult(outcome="fine"), "does not fit a record (Invalid enum value 'fine' - at `$.outcome`)"),  # type: ignore[arg-type]
        (RankResult(metrics={"total_s": "long"}), f"total_s in what tests.records.{WHAT} is of type str; give"),  # type: ignore[dict-item]
        (of_run(metrics={"steps": "few"}), f"steps in what tests.records.{WHAT} is of type str; give a number."),
        (of_run(reported={"steps": "few"}), f"steps in what tests.records.{WHAT} is of type str; give a number."),
        (of_run(reported={"pps": 2**70}), "pps in what"),
        (of_run(reported={"pps": np.zeros(3)}), "pps in what"),
        (of_run(facts={"pps": object()}), "pps in what"),
        (of_run(device=3), "Expected `str`, got `int` - at `$.run.device`"),
        (of_run(epochs=[EpochRecord(epoch="1")]), "Expected `int`, got `str` - at `$.epoch`"),  # type: ignore[arg-type]
        (of_run(reported={"picture": "no"}), "picture"),
    ],
)  # fmt: skip
def test_a_value_that_no_record_holds_is_an_error_that_names_it(returned: Any, reason: str) -> None:
    result = result_of(returned)
    assert result.outcome is Outcome.ERROR
    assert reason in result.reason
    assert "\n" not in result.reason
    assert record_of(result).outcome is Outcome.ERROR


@pytest.mark.parametrize(
    "returned",
    [
        RankResult(metrics={"pps": 1.0}), of_run(metrics={"pps": 1.0}),
        RankResult(epochs=[EpochRecord(epoch=1, metrics={"pps": 1.0})]),
    ],
)  # fmt: skip
def test_a_number_that_was_measured_and_is_no_metric_is_an_error(returned: RankResult) -> None:
    result = result_of(returned)
    record = record_of(result)
    assert record.outcome is Outcome.ERROR
    assert record.reason.startswith("pps: there is no Metric of this name; add it to the workload")
    known = Metric(name="pps", kind="rate", direction="max", scope="rank", across_ranks="sum")
    assert record_of(result, known).outcome is Outcome.OK


def test_a_number_that_the_user_reports_needs_no_metric() -> None:
    record = record_of(of_run(reported={"points": 2.0, "note": "x"}))
    assert (record.outcome, record.metrics, record.facts) == (Outcome.OK, {"points": 2.0}, {"note": "x"})


@pytest.mark.parametrize("loss", ["low", 2**70, object()])
def test_an_epoch_that_no_record_holds_is_an_error(loss: Any) -> None:
    result = result_of(RankResult(), emitted=EpochRecord(epoch=1, metrics={"train_loss": loss}))
    assert result.outcome is Outcome.ERROR
    assert "train_loss" in result.reason
    assert "train emitted" in result.reason


def test_scalars_of_numpy_become_plain() -> None:
    events: list[Any] = []
    run = RunResult(metrics={"steps": np.int32(2)}, reported={"pps": np.int64(3)})  # type: ignore[dict-item]
    result = result_of(
        RankResult(metrics={"total_s": np.float32(0.5)}, run=run),  # type: ignore[dict-item]
        emitted=EpochRecord(epoch=1, metrics={"train_loss": np.float32(0.25)}),  # type: ignore[dict-item]
        emit=events.append,
    )
    record = record_of(result)
    assert result.reason == ""
    assert record.metrics == {"total_s": 0.5, "pps": 3, "steps": 2}
    assert type(events[0].epoch.metrics["train_loss"]) is float


@pytest.mark.parametrize("name", ["to_json", "seed", "machine", "config"])
def test_a_metric_never_overwrites_what_names_the_run(name: str) -> None:
    metric = Metric(name=name, label=name, kind="value", direction="max", scope="run")
    record = record_of(of_run(metrics={name: 3.0}), metric)
    assert (record.seed, record.machine, record.config) == (7, {}, {})
    assert record.metrics == {name: 3.0}


def test_an_epoch_has_any_whole_number_and_a_best_epoch_that_is_none_of_them_is_the_last() -> None:
    epoch = EpochRecord(epoch=-1, metrics={"train_loss": 0.5})
    record = record_of(result_of(of_run(metrics={"best_epoch": 9}, epochs=[epoch])))
    assert [item.epoch for item in record.epochs] == [-1]
    assert record.metrics["train_loss"] == 0.5


class Colour(enum.Enum):
    RED = "red"


class Raises:
    def __float__(self) -> float:
        raise RuntimeError(f"at {id(self)}")


def nested(levels: int) -> Any:
    value: Any = 1.0
    for _ in range(levels):
        value = [value]
    return value


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True), (np.array([2.0]), 2.0),
        (torch.tensor(1.5), 1.5), (torch.tensor([2]), 2), (np.float32("inf"), math.inf),
        (decimal.Decimal("1.5"), 1.5), ({"a": (1, np.float64(2))}, {"a": [1, 2.0]}),
        ({1: None}, {"1": None}), (Colour.RED, "red"), (date(2026, 1, 2), "2026-01-02"), ([math.nan], [None]),
        ("x", "x"), (None, None), (nested(50), nested(50)),
    ],
)  # fmt: skip
def test_what_json_can_hold_becomes_plain(value: Any, expected: Any) -> None:
    made = plain(value)
    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize(
    "value",
    [np.zeros(3), torch.zeros(2), object(), Path("x"), Raises(), CIRCLE, nested(2_000), 2**70, "x" * 5_000_000,
     {(1,): 2}],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_no_record_can_hold_is_refused_with_one_reason_for_one_cause(value: Any) -> None:
    with pytest.raises(NotPlainError, match="; ") as first:
        plain(value)
    with pytest.raises(NotPlainError) as second:
        plain(value)
    assert str(first.value) == str(second.value)
    assert "\n" not in str(first.value)


def test_what_a_function_reports_is_kept_where_it_can_be_recorded_and_named_where_it_cannot() -> None:
    reported = Reported(taken={"width"})
    values = {
        "bits": 2.0, "done": True, "note": "x", "width": 1, "seed": 3, "test_accuracy": "high", "rate": math.inf,
        "val_loss": math.nan, "weights": torch.zeros(2), "picture": "no",
    }  # fmt: skip
    kept = reported.read(values, {"test_accuracy"})
    assert math.isnan(kept.pop("val_loss")), "a loss that is not finite makes the run diverge"
    assert kept == {"bits": 2.0, "done": 1, "note": "x", "measured_width": 1, "measured_seed": 3}
    for text in ("test_accuracy is of type str", "rate has the value inf", "weights is of type Tensor", "no JPEG"):
        assert text in reported.left_out


def test_what_is_no_dict_is_one_value_and_nothing_is_none() -> None:
    assert Reported().read(0.5, ()) == {"returned": 0.5}
    assert Reported().read(None, ()) == {}
