"""Gradients that a program throws away before an optimizer applies them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import SGD

from dmls_ray.training.observed.gradients import Gradients


def after_a_backward_pass(parameters: list[nn.Parameter]) -> tuple[Gradients, SGD]:
    gradients = Gradients()
    optimizer = SGD(parameters)
    gradients.optimizer_made(optimizer)
    torch.stack([parameter.sum() for parameter in parameters if parameter.requires_grad]).sum().backward()
    gradients.backward_ended()
    return gradients, optimizer


@pytest.mark.parametrize(
    "drop",
    [
        lambda optimizer, parameter: optimizer.zero_grad(),
        lambda optimizer, parameter: optimizer.zero_grad(set_to_none=False),
        lambda optimizer, parameter: parameter.grad.zero_(),
        lambda optimizer, parameter: setattr(parameter, "grad", None),
    ],
)
def test_gradients_that_are_none_or_zero_are_gone(drop: Callable[[SGD, nn.Parameter], object]) -> None:
    parameter = nn.Parameter(torch.ones(3))
    gradients, optimizer = after_a_backward_pass([parameter])
    assert not gradients.are_gone()
    drop(optimizer, parameter)
    assert gradients.are_gone()


def test_gradients_that_are_clipped_or_added_to_are_there() -> None:
    parameter = nn.Parameter(torch.ones(3))
    gradients, _ = after_a_backward_pass([parameter])
    nn.utils.clip_grad_norm_([parameter], 0.1)
    assert not gradients.are_gone()
    parameter.sum().backward()
    assert not gradients.are_gone()


def test_gradients_of_another_optimizer_are_there() -> None:
    one, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    gradients, optimizer = after_a_backward_pass([one, other])
    second = SGD([other])
    gradients.optimizer_made(second)
    one.grad = None
    assert not gradients.are_gone()
    optimizer.zero_grad()
    assert gradients.are_gone()


def test_without_a_gradient_nothing_is_gone() -> None:
    gradients = Gradients()
    assert not gradients.are_gone()
    gradients.optimizer_made(SGD([nn.Parameter(torch.ones(3))]))
    gradients.backward_ended()
    assert not gradients.are_gone()
