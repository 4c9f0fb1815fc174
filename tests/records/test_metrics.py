"""One entry per metric: what a rank returns is named by one, and none is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.records.aggregate import take_results
from dmls_ray.records.metrics import BY_NAME, LEARNED, TRAINING_METRICS, Metric, is_loss
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import run_inline
from tests.run_results import run_of


def record_of(results: list[RankResult], *metrics: Metric) -> RunRecord:
    record = RunRecord(run_id="a-0", trial_id="a", repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK)
    take_results(record, results, (*TRAINING_METRICS, *metrics))
    return record


def test_every_number_that_training_records_has_an_entry() -> None:
    config = TrialConfig(
        batch_per_rank=64, accum_steps=2, epochs=1, noise_scale=True, target_accuracy=0.1,
        dataset="synthetic:shape=1x8x8,classes=3,train=256,test=64",
    )  # fmt: skip
    record = record_of([run_inline(config)])
    for part in (record, *record.epochs, *record.ranks, *record.ranks[0].epochs):
        assert part.metrics.keys() <= BY_NAME.keys()


@pytest.mark.parametrize(
    ("scope", "across", "expected"),
    [
        ("rank", {"across_ranks": "max"}, 3.0), ("rank", {"across_ranks": "min"}, 1.0),
        ("rank", {"across_ranks": "sum"}, 4.0), ("rank", {"across_ranks": "mean"}, 2.0),
        ("rank", {"across_ranks": "spread"}, 2.0), ("epoch", {"across_epochs": "last"}, 1.0),
        ("epoch", {"across_epochs": "sum"}, 4.0), ("epoch", {"across_epochs": "none"}, None),
    ],
)  # fmt: skip
def test_a_metric_is_combined_over_ranks_or_epochs_as_its_entry_says(
    scope: Any, across: dict[str, Any], expected: float | None
) -> None:
    stall = Metric(name="stall_s", kind="amount", direction="min", scope=scope, **across)
    values = [{"stall_s": 3.0}, {"stall_s": 1.0}]
    if scope == "rank":
        results = [RankResult(rank=rank, metrics=item) for rank, item in enumerate(values)]
    else:
        epochs = [{"epoch": number, **item} for number, item in enumerate(values, start=1)]
        results = [RankResult(rank=0, run=run_of({"epochs": epochs}))]
    assert record_of(results, stall).metrics.get("stall_s") == expected


def test_a_metric_of_ranks_says_what_becomes_of_their_values() -> None:
    with pytest.raises(ValueError, match="stall_s: a Metric of scope rank says by across_ranks"):
        Metric(name="stall_s", kind="amount", direction="min", scope="rank")


def test_every_metric_has_one_entry_and_a_sentence() -> None:
    assert len(BY_NAME) == len(TRAINING_METRICS)
    assert all(metric.doc.endswith(".") for metric in TRAINING_METRICS)


def test_a_loss_is_called_loss_or_ends_in_it() -> None:
    assert is_loss("loss")
    assert is_loss("val_loss")
    assert not is_loss("loss_scale")
    assert not is_loss("gloss")
    assert [name for name in LEARNED if is_loss(name)] == ["train_loss", "test_loss", "validation_loss"]


def test_the_kinds_of_memory_of_a_run_are_those_of_the_rank_with_the_largest_peak() -> None:
    kinds = [metric.name for metric in TRAINING_METRICS if metric.part_of == "tensor_mem_mib"]
    assert kinds == [f"{kind}_mem_mib" for kind in ("parameter", "gradient", "optimizer", "activation", "other")]
    sizes = [(1.0, 1.0, 9.0, 1.0, 0.0), (2.0, 2.0, 0.0, 8.0, 1.0)]
    results = [
        RankResult(rank=rank, metrics={"tensor_mem_mib": sum(size), **dict(zip(kinds, size, strict=True))})
        for rank, size in enumerate(sizes)
    ]
    record = record_of(results)
    assert record.metrics["tensor_mem_mib"] == 13.0
    assert tuple(record.metrics[kind] for kind in kinds) == sizes[1]
    assert record_of([RankResult(rank=0, no_tensor_mem="it failed")]).metrics == {}


def test_exposed_communication_is_that_of_the_rank_that_waits_least_and_the_wait_stands_apart() -> None:
    ranks = [RankResult(rank=rank, metrics={"exposed_comm_ms": exposed}) for rank, exposed in enumerate((21.3, 0.8))]
    record = record_of(ranks)
    assert record.metrics["exposed_comm_ms"] == 0.8
    assert record.metrics["straggler_wait_ms"] == pytest.approx(20.5)
    assert record_of([RankResult(rank=0)]).metrics == {}


def test_the_gap_compares_two_evaluations_of_the_trained_model() -> None:
    epochs = [{"epoch": 1, "train_loss": 0.9, "train_accuracy": 0.6, "test_loss": 0.5, "test_accuracy": 0.75}]
    evaluated = {"train_eval_loss": 0.25, "train_eval_accuracy": 0.875, "train_eval_samples": 8}
    record = record_of([RankResult(rank=0, run=run_of({"epochs": epochs, **evaluated}))])
    assert record.metrics == {
        **evaluated, "train_loss": 0.9, "test_loss": 0.5, "loss_gap": 0.25,
        "train_accuracy": 0.875, "test_accuracy": 0.75, "accuracy_gap": 0.125,
    }  # fmt: skip
    assert record.epochs[0].metrics["train_accuracy"] == 0.6
    without = record_of([RankResult(rank=0, run=run_of({"epochs": epochs}))])
    assert without.metrics["accuracy_gap"] == pytest.approx(-0.15)


@pytest.mark.parametrize("rate", ["images_per_s", "samples_per_s"])
def test_the_energy_of_a_sample_is_that_of_all_ranks(rate: str) -> None:
    first, second = {"power_w": 300.0, "total_s": 1.0}, {"power_w": 500.0, "total_s": 1.0}
    results = [RankResult(rank=0, metrics=first, run=run_of({rate: 1600.0})), RankResult(rank=1, metrics=second)]
    assert record_of(results).metrics["joules_per_sample"] == 0.5
    assert record_of(results).metrics["power_w"] == 800.0
    for result in results:
        del result.metrics["power_w"]
    assert "joules_per_sample" not in record_of(results).metrics
