"""What is measured around a training function of the user's own, and what it may tell."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from dmls_ray.records.metrics import BY_NAME
from dmls_ray.records.model import STEP_QUANTILES, EpochRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, Progress, RankEvent, RankResult
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.conftest import jpeg
from tests.new_processes import run_inline, run_ranks
from tests.records.test_model import recorded


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


def train(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any] | None:
    """Descends a parabola from a random place, and tells what it is asked to."""
    place = torch.nn.Parameter(torch.randn(()))
    optimizer = torch.optim.SGD([place], lr=0.1)
    for _ in range(config["steps"]):
        optimizer.zero_grad()
        (place**2).backward()
        optimizer.step()
    if rank.world_size > 1:
        torch.distributed.all_reduce(place.data)
    if config["tells"] == "exit":
        raise SystemExit(3)
    returned: dict[str, Any] = {
        "nothing": None,
        "scalars": {"test_loss": place.detach() ** 2, "perplexity": np.float32(2.5), "tokens": [1, 2], "note": "x"},
        "nan": {"test_loss": float("nan")},
        "not finite": {"grad_norm": float("inf"), "recall": [0.5, float("nan")]},
        "tensor": {"places": torch.zeros(3)},
        "text": {"test_accuracy": "high", "note": "high"},
        "number": place.detach() * 0 + 0.93,
        "object": optimizer,
        "names": {"steps": 1, "cpu": 2, "device": 3, "tells": 4, "run_seed": 5, "test_loss": 6, "measured_steps": 7},
        "picture": {"picture": jpeg(), "bits": 2.0},
        "no picture": {"picture": None, "bits": 2.0},
        "png": {"picture": jpeg(image_format="PNG")},
    }[config["tells"]]
    if config["emits"] == "odd":
        for number in (1, 2.0, "three", torch.tensor(4), float("nan")):
            values = {"train_loss": 0.5, "test_loss": "low", "images": 9, "tells": 2, "confusion": torch.zeros(3)}
            emit({"epoch": number, **values, "nested": deep(13), "deeper": deep(15)})
    elif config["emits"]:
        emit({"train_loss": torch.tensor(3.0), "grad_norm": 1})
        emit({"kind": "progress"})
        emit({"epoch": 2, "train_loss": 2.0, "grad_norm": 0.5})
    return returned


def train_folds(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Trains a model for each fold; returns how many of them are still there after the last."""
    models = []
    for _ in range(3):
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        models.append(weakref.ref(model.weight))
        del model, optimizer
        gc.collect()
    return {"kept": sum(model() is not None for model in models)}


def test_models_that_the_function_has_dropped_do_not_stay_in_memory() -> None:
    config = user_function_schema(train_folds, ["x"]).make(x=1, device="cpu")
    result = run_inline(config, train=run_user_function)
    assert result.outcome == "ok", result.traceback
    assert result.run.metrics["steps"] == 3
    assert result.run.reported["kept"] == 0


def run_in_place(config: Any, **options: Any) -> list[RankResult]:
    """The results of the ranks: of one in this process, of several in new ones."""
    if config.world_size > 1:
        return run_ranks(config, train=run_user_function, **options)
    return [run_inline(config, train=run_user_function, **options)]


def result_of(**values: Any) -> tuple[RunRecord, list[RankEvent]]:
    given = {"steps": 12, "tells": "nothing", "emits": False} | values
    config = user_function_schema(train, given).make(**given)
    events: list[RankEvent] = []
    results = run_in_place(config, emit=events.append)
    written = recorded(*results, outcome=results[0].outcome, reason=results[0].reason)
    return RunRecord.from_json(written.to_json()), events


def others(record: RunRecord | EpochRecord) -> dict[str, Any]:
    """What a function reported that has no entry in the registry."""
    numbers = {name: value for name, value in record.metrics.items() if name not in BY_NAME}
    return numbers | {name: value for name, value in record.facts.items() if name not in ("samples_unknown", "no_mfu")}


def test_time_memory_and_steps_are_measured_of_a_function_that_reports_nothing() -> None:
    record, events = result_of()
    assert record.outcome is Outcome.OK
    assert record.metrics["steps"] == 12
    assert record.metrics["step_ms_p50"] > 0
    assert all(len(rank.step_ms_quantiles) == len(STEP_QUANTILES) for rank in record.ranks)
    assert 0 < record.metrics["setup_s"] < record.metrics["total_s"]
    assert record.metrics["peak_mem_mib"]
    assert 0 <= record.metrics["host_mem_mib"] < record.metrics["peak_mem_mib"] / 2
    assert record.metrics.get("tensor_mem_mib") is None
    assert "user-defined" in record.ranks[0].no_tensor_mem
    assert others(record) == {}
    assert record.metrics.get("train_s") is None, "no value says how long training took"
    assert events == [Progress()] * 12, "each optimizer step is a sign of progress"


def test_what_it_returns_fills_the_columns_of_the_vocabulary_and_makes_others() -> None:
    record, _ = result_of(tells="scalars")
    assert 0 <= record.metrics["test_loss"] < 1
    assert others(record) == {"perplexity": 2.5, "tokens": [1, 2], "note": "x"}


def test_a_picture_that_it_returns_is_the_runs_and_no_measure() -> None:
    record, _ = result_of(tells="picture")
    assert (record.picture, others(record)) == (jpeg(), {"bits": 2.0})
    record, _ = result_of(tells="no picture")
    assert (record.outcome, record.picture, others(record)) == (Outcome.OK, "", {"bits": 2.0})


def test_what_it_emits_becomes_epochs_and_the_last_one_stands_for_the_run() -> None:
    record, events = result_of(emits=True)
    ends = [epoch.metrics["ended_s"] or 0.0 for epoch in record.epochs]
    assert 0 < ends[0] < ends[1] < (record.metrics["total_s"] or 0.0), "when each epoch ended needs no report"
    assert record.epochs == [
        EpochRecord(epoch=1, metrics={"train_loss": 3.0, "ended_s": ends[0], "grad_norm": 1}),
        EpochRecord(epoch=2, metrics={"train_loss": 2.0, "ended_s": ends[1], "grad_norm": 0.5}),
    ]
    assert record.metrics["train_loss"] == 2.0
    assert others(record) == {"grad_norm": 0.5}
    assert [event.epoch.epoch for event in events if isinstance(event, EpochEnded)] == [1, 2]


@pytest.mark.parametrize(
    ("tells", "outcome", "reason"),
    [("nan", Outcome.DIVERGED, "test_loss is not finite"), ("exit", Outcome.ERROR, "SystemExit: 3")],
)
def test_a_loss_that_is_not_finite_or_an_error_is_the_outcome(tells: str, outcome: Outcome, reason: str) -> None:
    record, _ = result_of(tells=tells)
    assert (record.outcome, record.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("tells", "kept", "why"),
    [
        ("tensor", {}, "places is of type Tensor and no record can hold it"),
        ("text", {"note": "high"}, "test_accuracy is of type str; give a number"),
        ("not finite", {"recall": [0.5, None]}, "grad_norm has the value inf; give a finite number"),
        ("number", {"returned": pytest.approx(0.93)}, ""),
        ("object", {}, "returned is of type SGD and no record can hold it"),
        ("png", {}, "picture is no JPEG"),
    ],
)
def test_what_cannot_be_recorded_is_named_and_all_else_is_kept(tells: str, kept: Any, why: str) -> None:
    record, _ = result_of(tells=tells, emits=True)
    assert (record.outcome, record.reason) == (Outcome.OK, "")
    assert (record.metrics["train_loss"], len(record.epochs), record.metrics["steps"]) == (2.0, 2, 12)
    assert others(record) == {"grad_norm": 0.5, **kept}
    assert record.not_recorded.startswith(why)
    assert bool(record.not_recorded) is bool(why)


@pytest.mark.parametrize("world_size", [1, 2])
def test_what_cannot_be_recorded_of_an_epoch_is_named_and_all_else_is_kept(world_size: int) -> None:
    record, events = result_of(emits="odd", world_size=world_size, device="cpu")
    assert (record.outcome, record.reason) == (Outcome.OK, "")
    assert [epoch.epoch for epoch in record.epochs] == [1, 2, 3, 4, 5]
    assert {epoch.metrics["train_loss"] for epoch in record.epochs} == {0.5}
    kept = {"measured_images": 9, "measured_tells": 2}
    assert all(others(epoch).items() >= kept.items() for epoch in record.epochs)
    assert others(record).items() >= kept.items()
    assert [event.epoch for event in events if isinstance(event, EpochEnded)] == record.epochs
    reasons = dict(text.split(" ", 1) for text in record.not_recorded.split("; ") if " is " in text or " has " in text)
    assert {"test_loss", "epoch"} <= reasons.keys()


def test_a_metric_with_the_name_of_a_recorded_column_or_of_a_field_has_another() -> None:
    record, _ = result_of(tells="names")
    assert record.metrics["test_loss"] == 6
    assert record.metrics["steps"] == 12
    renamed = {"measured_measured_steps": 1, "measured_steps": 7, "measured_device": 3, "measured_tells": 4}
    assert others(record) == {"cpu": 2, "measured_run_seed": 5, **renamed}
    assert record.device == "cpu"


def test_it_is_seeded_like_any_run() -> None:
    losses = [result_of(tells="scalars", seed=seed)[0].metrics["test_loss"] for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def nested(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    """Two optimizers, one of which steps another, as ZeRO does."""

    class Outer(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            inner.step()

    place = torch.nn.Parameter(torch.ones(()))
    inner = torch.optim.SGD([place], lr=0.1)
    outer = Outer([place], lr=0.1)
    for _ in range(config["steps"]):
        place.square().backward()
        outer.step()
        inner.step()


def test_an_optimizer_inside_another_one_counts_no_step_of_its_own() -> None:
    schema = user_function_schema(nested, {"steps": 6})
    result = run_inline(schema.make(steps=6), train=run_user_function)
    assert result.outcome == "ok", result.traceback
    assert result.run.metrics["steps"] == 6  # those of the first one
