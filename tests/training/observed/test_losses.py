"""The loss of each step, over its backward passes."""

from __future__ import annotations

import torch

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
