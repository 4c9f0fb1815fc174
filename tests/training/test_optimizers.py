from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from dmls_ray.training.optimizer_step import OptimizerStep
from dmls_ray.training.optimizers import lr_factor, make_optimizer
from dmls_ray.training.rank import RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.train import rank_trainer


def config(**changes: Any) -> TrialConfig:
    return TrialConfig(**{"batch_per_rank": 8, "optimizer": "sgd", "lr": 0.1, **changes})


@pytest.mark.parametrize(
    ("name", "kind", "fused"),
    [("adam", "Adam", True), ("adamw", "AdamW", True), ("sgd", "SGD", True), ("rmsprop", "RMSprop", False)],
)
def test_each_optimizer_is_that_of_pytorch_and_fused_if_there_is_a_kernel(name: str, kind: str, fused: bool) -> None:
    trial = config(batch_per_rank=64, optimizer=name, lr_scaling="linear", weight_decay=0.01)
    optimizer = make_optimizer(trial, nn.Linear(2, 2).parameters())
    assert type(optimizer).__name__ == kind
    assert optimizer.defaults["lr"] == pytest.approx(0.2)
    assert optimizer.defaults["weight_decay"] == 0.01
    assert bool(optimizer.defaults.get("fused")) is fused


@pytest.mark.parametrize("name", ["sgd", "rmsprop"])
def test_momentum_reaches_the_optimizers_that_have_it(name: str) -> None:
    trial = config(optimizer=name, momentum=0.5)
    assert make_optimizer(trial, nn.Linear(2, 2).parameters()).defaults["momentum"] == 0.5


def rates(trial: TrialConfig, steps: int) -> list[float]:
    """The learning rate in each optimizer step."""
    weight = nn.Parameter(torch.ones(1))
    update = OptimizerStep(trial, [weight], steps)
    values = []
    for _ in range(steps):
        update.backward(weight.square().sum())
        values.append(update.optimizer.param_groups[0]["lr"])
        update.step()
    return values


def test_the_schedule_moves_by_optimizer_step() -> None:
    assert rates(config(), 3) == [0.1] * 3
    warm = rates(config(lr_warmup_steps=3), 6)
    assert warm == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    cosine = rates(config(lr_schedule="cosine", lr_warmup_steps=1), 5)
    assert cosine == pytest.approx([0.05, *(0.05 * (1 + math.cos(math.pi * step / 4)) for step in range(4))])
    cycle = rates(config(lr_schedule="one-cycle"), 20)
    assert cycle[0] == pytest.approx(0.1 / 25)
    assert max(cycle) == pytest.approx(0.1, rel=0.05)
    assert cycle[-1] < 0.01
    assert cycle.index(max(cycle)) in (5, 6, 7)


def test_a_warm_up_longer_than_the_run_rises_to_its_end() -> None:
    factor = lr_factor(config(lr_warmup_steps=100), 4)
    assert [factor(step) for step in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])


@pytest.mark.parametrize("accum_steps", [1, 4])
def test_the_schedule_of_a_run_counts_steps_and_not_batches(accum_steps: int) -> None:
    trial = config(dataset="synthetic:shape=1x8x8,classes=2,train=64,test=8", accum_steps=accum_steps, epochs=2,
                   lr_schedule="cosine", device="cpu")  # fmt: skip
    made = rank_trainer(trial, RankInfo())
    made.run(lambda event: None)
    assert made.optimizer_step.schedule is not None
    assert made.optimizer_step.schedule.last_epoch == 2 * 8 / accum_steps
    assert made.optimizer_step.optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-9)
