"""The training loop with a task that is not classification: it needs nothing but `TrainingConfig`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.run_events import EpochEnded, Progress, RankResult
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.run_training import run_training
from dmls_ray.training.sharding import MicroBatch, epoch_order, evaluation_shards, micro_batches
from dmls_ray.training.task import EvalSplit, Forward, TrainingTask
from tests.new_processes import run_inline

SLOPE = 3.0


@dataclass(frozen=True, kw_only=True)
class LineConfig(TrainingConfig):
    slope: float = SLOPE


class LineTask(TrainingTask):
    """Fits y = slope * x."""

    train_samples, validation_samples, test_samples = 40, 0, 10

    def __init__(self, config: LineConfig, rank: RankInfo, device: torch.device) -> None:
        self.config, self.rank = config, rank
        self.model = nn.Linear(1, 1)
        self.x = torch.linspace(-1, 1, 50)[:, None]
        self.y = config.slope * self.x

    def train_batches(self, epoch: int) -> Iterator[tuple[MicroBatch, Any]]:
        order = epoch_order(self.train_samples, self.config, epoch)
        for micro_batch in micro_batches(self.train_samples, self.config, self.rank.rank):
            samples = order[micro_batch.start : micro_batch.stop]
            yield micro_batch, (self.x[samples], self.y[samples])

    def evaluation_batches(self, split: EvalSplit) -> Iterator[Any]:
        for shard in evaluation_shards(self.test_samples, self.config, self.rank.rank):
            yield self.x[40:][shard], self.y[40:][shard]

    def example_batch(self, samples: int) -> Any:
        return torch.zeros(samples, 1), torch.zeros(samples, 1)

    def predict(self, forward: Forward, batch: Any) -> Any:
        return forward(batch[0])

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        loss: Tensor = (outputs - batch[1]).square().sum()
        return loss


def train_line(config: LineConfig, rank: RankInfo, emit: Emit) -> RankResult:
    return run_training(config, rank, emit, LineTask)


def line(**changes: Any) -> LineConfig:
    return LineConfig(**{"global_batch": 8, "epochs": 6, "lr": 0.3, "optimizer": "sgd", "device": "cpu", **changes})


def test_a_task_trains_and_reports_the_values_of_its_meter() -> None:
    events: list[Any] = []
    result = run_inline(line(), train=train_line, emit=events.append)
    assert result.outcome == "ok", result.traceback
    losses = [epoch.metrics["test_loss"] for epoch in result.run.epochs]
    assert losses[-1] < 0.1 * losses[0]
    assert "train_accuracy" not in result.run.epochs[0].metrics
    assert sum(isinstance(event, EpochEnded) for event in events) == 6
    assert Progress() in events
