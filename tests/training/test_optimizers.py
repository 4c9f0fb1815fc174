from __future__ import annotations

import pytest
import torch
from torch import nn

from dmls_ray.training.optimizers import make_optimizer
from dmls_ray.workloads.classification.config import TrialConfig


@pytest.mark.parametrize(
    ("name", "kind", "fused"),
    [("adam", "Adam", True), ("adamw", "AdamW", True), ("sgd", "SGD", True), ("rmsprop", "RMSprop", False)],
)
def test_each_optimizer_is_that_of_pytorch_and_fused_if_there_is_a_kernel(name: str, kind: str, fused: bool) -> None:
    config = TrialConfig(batch_per_rank=64, optimizer=name, lr=0.1, lr_scaling="linear", weight_decay=0.01)  # type: ignore[arg-type]
    optimizer = make_optimizer(config, nn.Linear(2, 2).parameters())
    assert type(optimizer).__name__ == kind
    assert optimizer.defaults["lr"] == pytest.approx(0.2)
    assert optimizer.defaults["weight_decay"] == 0.01
    assert bool(optimizer.defaults.get("fused")) is fused


@pytest.mark.parametrize("name", ["sgd", "rmsprop"])
def test_momentum_reaches_the_optimizers_that_have_it(name: str) -> None:
    config = TrialConfig(batch_per_rank=64, optimizer=name, momentum=0.5)  # type: ignore[arg-type]
    assert make_optimizer(config, nn.Linear(2, 2).parameters()).defaults["momentum"] == 0.5


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop"])
def test_every_optimizer_goes_downhill(name: str) -> None:
    weight = nn.Parameter(torch.tensor([3.0]))
    optimizer = make_optimizer(TrialConfig(batch_per_rank=32, optimizer=name, lr=0.1), [weight])  # type: ignore[arg-type]
    for _ in range(60):
        weight.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert abs(weight.item()) < 1
