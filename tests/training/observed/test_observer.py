"""What the observer tells its parts, and that no error of one of them ends a program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dmls_ray.training.observed.ledger import Ledger
from dmls_ray.training.observed.observer import ObservedSteps
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.rank_meter import RankMeter


def trained(steps: ObservedSteps) -> nn.Module:
    """A model after six steps of two backward passes each."""
    with steps.counted():
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            optimizer.zero_grad()
            for _ in range(2):
                model(torch.ones(4, 3)).mean().backward()
            optimizer.step()
    return model


def test_a_step_has_its_backward_passes_losses_and_what_the_code_counts() -> None:
    rank = RankInfo()
    steps = ObservedSteps(RankMeter(rank), lambda event: None)
    steps._on_step_ended = lambda _: rank.count(samples=2, tokens=3)
    trained(steps)
    assert steps.faults.first == ""
    assert [len(step.passes) for step in steps.steps] == [2] * 6
    assert [step.counted_tokens for step in steps.steps] == [0, 3, 3, 3, 3, 3]
    assert len(steps.losses.of_steps) == steps.count == 6
    assert (Ledger(steps).samples.counted_by, steps.models.parameters) == ("user", 4)


@pytest.mark.parametrize(
    "named",
    [
        "losses.backward_began", "inputs.forward_began", "tests.backward_began", "rule.optimizer_stepped",
        "step.step_ended", "timer.step", "models.find", "communication.step_ended",
    ],
)  # fmt: skip
def test_an_error_of_a_part_is_a_note_and_the_program_goes_on(named: str) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError(named)

    steps = ObservedSteps(RankMeter(RankInfo()), lambda event: None)
    part, _, method = named.partition(".")
    setattr(getattr(steps, part), method, fail)
    assert trained(steps).weight.grad is not None
    assert steps.faults.first == f"KeyError: '{named}'"
