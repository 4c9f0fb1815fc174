"""The loss of each step, over its backward passes."""

from __future__ import annotations

import torch

from dmls_ray.training.compat import around_backward_passes
from dmls_ray.training.observed.losses import StepLosses


def test_the_loss_of_a_step_is_the_mean_over_its_backward_passes_where_each_begins_with_a_number() -> None:
    losses = StepLosses()
    for roots in ([1.0, 3.0], [5.0], []):
        for value in roots:
            losses.backward_began(torch.tensor(value))
        losses.step_ended()
    losses.backward_began([torch.ones(2)])  # several numbers
    losses.step_ended()
    assert losses.of_steps == [2.0, 5.0, None, None]
    assert losses.early == 3.5


def test_a_loss_that_was_scaled_is_the_one_before() -> None:
    losses = StepLosses()
    loss, scaled = torch.tensor(2.0), torch.tensor(2048.0)
    losses.loss_scaled(loss, scaled)
    losses.backward_began((scaled,))
    losses.step_ended()
    assert losses.of_steps == [2.0]


def test_all_tensors_that_a_pass_begins_with_count_with_what_their_gradients_are_multiplied_by() -> None:
    losses = StepLosses()
    first, second = torch.tensor(2.0), torch.tensor([3.0])
    passes = [
        ((first, second), None, 5.0),
        ((first, second), (torch.tensor(0.5), None), 4.0),
        (first, torch.tensor(0.25), 0.5),
        (torch.tensor([1.0, 3.0]), torch.tensor([0.5, 0.5]), 2.0),
    ]
    for roots, weights, _ in passes:
        losses.backward_began(roots, weights)
        losses.step_ended()
    assert losses.of_steps == [loss for *_, loss in passes]


def test_a_pass_that_begins_with_what_can_be_read_once_has_its_gradients() -> None:
    weight, losses = torch.tensor(3.0, requires_grad=True), StepLosses()
    with around_backward_passes(losses.backward_began, lambda: None):
        torch.autograd.backward((loss for loss in (weight * 2, weight * 4)), (factor for factor in torch.ones(2)))
    losses.step_ended()
    assert weight.grad == 6.0
    assert losses.of_steps == [18.0]
