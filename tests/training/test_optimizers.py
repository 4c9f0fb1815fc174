from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from dmls_ray.training.optimizers import OptimizerStep, lr_factor, make_optimizer
from dmls_ray.training.rank import RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.train import rank_trainer
from tests.new_processes import run_inline


def config(**changes: Any) -> TrialConfig:
    return TrialConfig(**{"batch_per_rank": 8, "optimizer": "sgd", "lr": 0.1, **changes})


@pytest.mark.parametrize(
    ("name", "kind", "fused", "momentum"),
    [
        ("adam", "Adam", True, None), ("adamw", "AdamW", True, None), ("sgd", "SGD", True, 0.5),
        ("rmsprop", "RMSprop", False, 0.5),
    ],
)  # fmt: skip
def test_each_optimizer_is_that_of_pytorch_and_fused_if_there_is_a_kernel(
    name: str, kind: str, fused: bool, momentum: float | None
) -> None:
    options = {} if momentum is None else {"momentum": momentum}
    trial = config(batch_per_rank=64, optimizer=name, lr_scaling="linear", weight_decay=0.01, **options)
    optimizer = make_optimizer(trial, nn.Linear(2, 2).parameters())
    assert type(optimizer).__name__ == kind
    assert optimizer.defaults["lr"] == pytest.approx(0.2)
    assert optimizer.defaults["weight_decay"] == 0.01
    assert bool(optimizer.defaults.get("fused")) is fused
    assert optimizer.defaults.get("momentum") == momentum


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
    assert made.optimizer_step.schedule.last_epoch == 2 * 8 / accum_steps
    assert made.optimizer_step.optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-9)


def test_l1_adds_the_sign_of_each_parameter_to_its_gradient() -> None:
    weight = nn.Parameter(torch.tensor([2.0, -3.0, 0.0]))
    update = OptimizerStep(config(l1=0.5), [weight], 1)
    update.backward((weight * torch.tensor([1.0, 1.0, 1.0])).sum())
    update.step()
    torch.testing.assert_close(weight.detach(), torch.tensor([2.0 - 0.15, -3.0 - 0.05, 0.0 - 0.1]))


def test_a_gradient_is_clipped_to_its_norm_over_all_parameters() -> None:
    weights = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
    update = OptimizerStep(config(clip_norm=1.0), weights, 1)
    update.backward(3 * weights[0].sum() + 4 * weights[1].sum())
    update.step()
    torch.testing.assert_close(torch.cat([item.detach() for item in weights]), torch.tensor([-0.06, -0.08]), rtol=1e-4,
                               atol=1e-6)  # fmt: skip


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop"])
def test_steps_whose_gradients_are_not_finite_are_skipped_and_counted(optimizer: str) -> None:
    weight = nn.Parameter(torch.ones(2))
    trial = config(precision="amp-fp16", optimizer=optimizer, clip_norm=1.0, lr_schedule="cosine")
    update = OptimizerStep(trial, [weight], 5)
    for finite in (False, True, False, True, True):
        before = weight.detach().clone()
        update.backward(weight.sum() if finite else weight.sum() * float("inf"))
        update.step()
        assert torch.equal(weight.detach(), before) is not finite
        assert weight.isfinite().all()
    assert update.skipped_steps == 2
    assert weight.grad is None


def test_gradients_are_unscaled_before_they_are_clipped() -> None:
    weight = nn.Parameter(torch.zeros(1))
    update = OptimizerStep(config(precision="amp-fp16", clip_norm=1.0), [weight], 1)
    assert float(update.loss_scale()) == 65536
    update.backward(0.5 * weight.sum())
    update.step()
    assert weight.item() == pytest.approx(-0.05), "a norm of 0.5 is below 1 once the scale is taken out"


def test_an_optimizer_step_continues_exactly_from_its_saved_state() -> None:
    trial = config(optimizer="adam", precision="amp-fp16", lr_schedule="cosine", lr_warmup_steps=2)

    def steps(update: OptimizerStep, weight: nn.Parameter, numbers: range) -> None:
        for number in numbers:
            update.backward((weight * (number + 1.0)).square().sum() * (float("inf") if number == 1 else 1.0))
            update.step()

    whole, first = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
    undisturbed, cut = OptimizerStep(trial, [whole], 8), OptimizerStep(trial, [first], 8)
    steps(undisturbed, whole, range(8))
    steps(cut, first, range(4))
    second = nn.Parameter(first.detach().clone())
    resumed = OptimizerStep(trial, [second], 8)
    resumed.restore(cut.state())
    steps(resumed, second, range(4, 8))
    assert torch.equal(second.detach(), whole.detach())
    assert resumed.skipped_steps == undisturbed.skipped_steps == 1


@pytest.mark.parametrize("changes", [{"label_smoothing": 0.3}, {"l1": 0.01}, {"weight_decay": 0.05}])
def test_a_regulariser_changes_the_training(changes: dict[str, float]) -> None:
    trial = config(dataset="digits", batch_per_rank=32, epochs=1, device="cpu")
    plain, changed = (run_inline(item).run.epochs[0].metrics for item in (trial, trial.replace(**changes)))
    assert plain["test_loss"] != changed["test_loss"]


def test_the_train_loss_is_the_cross_entropy_without_smoothing_so_that_it_compares_with_the_test_loss() -> None:
    trial = config(dataset="digits", batch_per_rank=32, epochs=1, device="cpu", lr=1e-9)
    plain, smoothed = (run_inline(item).run.epochs[0].metrics for item in (trial, trial.replace(label_smoothing=0.9)))
    assert smoothed["train_loss"] == pytest.approx(plain["train_loss"], abs=1e-5)
