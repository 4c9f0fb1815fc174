from __future__ import annotations

import pytest
import torch
from torch import nn

from dmls_ray.records.model import EpochRecord
from dmls_ray.training.process import Collective
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.stopping import EarlyStopping
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import run_inline


def stopping(metric: str, patience: int) -> EarlyStopping:
    config = TrialConfig(batch_per_rank=8, early_stopping=metric, patience=patience, validation_share=0.1)  # type: ignore[arg-type]
    return EarlyStopping(config, Collective(RankInfo(), torch.device("cpu")))


def follow(watch: EarlyStopping, metric: str, values: list[float]) -> tuple[int, float]:
    """The epoch after which the run stops, and the weight that is restored; a weight is its epoch's number."""
    model = nn.Linear(1, 1, bias=False)
    for number, value in enumerate(values, start=1):
        nn.init.constant_(model.weight, float(number))
        if watch.observe(EpochRecord(epoch=number, metrics={metric: value}), model):
            break
    watch.load_best(model)
    return number, model.weight.item()


@pytest.mark.parametrize(
    ("metric", "patience", "values", "stopped", "best"),
    [
        ("test_loss", 2, [3, 2, 2.5, 2.1, 1], 4, 2),
        ("test_loss", 2, [3, 2, 2.5, 1.9, 2, 2], 6, 4),
        ("test_loss", 1, [3, 3, 1], 2, 1),
        ("test_accuracy", 2, [0.1, 0.5, 0.4, 0.5, 0.9], 4, 2),
        ("validation_loss", 1, [1, 2], 2, 1),
        ("validation_accuracy", 3, [0.1, 0.2], 2, 2),
    ],
)
def test_a_run_stops_when_patience_is_out_and_goes_back_to_its_best_epoch(
    metric: str, patience: int, values: list[float], stopped: int, best: int
) -> None:
    watch = stopping(metric, patience)
    assert follow(watch, metric, values) == (stopped, best)
    assert watch.best_epoch == best


def test_without_early_stopping_nothing_stops_and_nothing_is_restored() -> None:
    watch = stopping("off", 1)
    assert follow(watch, "test_loss", [1, 2, 3, 4]) == (4, 4)
    assert watch.best_epoch is None


def test_early_stopping_continues_from_its_saved_state() -> None:
    watch = stopping("test_loss", 2)
    follow(watch, "test_loss", [2, 3])
    again = stopping("test_loss", 2)
    again.restore(watch.state())
    assert again.observe(EpochRecord(epoch=3, metrics={"test_loss": 2.5}), nn.Linear(1, 1, bias=False))


def test_a_stopped_run_reports_the_metrics_of_its_best_epoch() -> None:
    trial = TrialConfig(batch_per_rank=4, dataset="synthetic:shape=1x8x8,classes=4,train=48,test=40", epochs=40,
                        early_stopping="validation_loss", patience=1, validation_share=0.25, lr=0.02,
                        device="cpu")  # fmt: skip
    result = run_inline(trial)
    run, epochs = result.run.metrics, result.run.epochs
    assert (run["train_samples"], run["validation_samples"]) == (36, 12)
    assert len(epochs) == run["best_epoch"] + 1 < 40
    assert run["steps"] == 9 * len(epochs)
    assert result.values["test_loss"] == pytest.approx(epochs[int(run["best_epoch"]) - 1].metrics["test_loss"])
    assert all("validation_accuracy" in epoch.metrics for epoch in epochs)
