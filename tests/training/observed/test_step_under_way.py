"""Which backward passes are of a step."""

from __future__ import annotations

import torch
from torch import nn

from dmls_ray.training.observed.given import Given, Input
from dmls_ray.training.observed.step_under_way import StepUnderWay


def given(size: int) -> Given:
    return Given([Input(((size, 3),))])


def passes(step: StepUnderWay, *sizes: int) -> None:
    for size in sizes:
        step.backward_began(given(size), [])
        step.backward_ended()


def sizes(some: list[Given | None]) -> list[int]:
    return [item.size for item in some if item is not None]


def test_a_step_has_its_backward_passes_and_the_next_one_begins_without_any() -> None:
    step = StepUnderWay()
    passes(step, 4, 8)
    step.gradients_applied(by_another=False)
    assert sizes(step.step_ended().passes) == [4, 8]
    assert step.seen.passes == []


def test_passes_that_another_optimizer_applies_are_marked() -> None:
    step = StepUnderWay()
    passes(step, 4)
    step.gradients_applied(by_another=True)
    passes(step, 8)
    step.gradients_applied(by_another=False)
    assert [item.is_of_another for item in step.step_ended().passes if item is not None] == [True, False]


def test_passes_of_an_attack_that_no_optimizer_applies_are_dropped() -> None:
    step = StepUnderWay()
    passes(step, 4)
    step.attack_began()
    passes(step, 2, 2)
    step.attack_ended()
    passes(step, 4)
    ended = step.step_ended()
    assert (sizes(ended.passes), sizes([*ended.dropped]), ended.of_test) == ([4, 4], [2, 2], 2)


def test_an_attack_that_an_optimizer_applies_was_training() -> None:
    step = StepUnderWay()
    step.attack_began()
    passes(step, 2)
    step.gradients_applied(by_another=False)
    step.attack_ended()
    assert sizes(step.step_ended().passes) == [2]


def test_passes_whose_gradients_are_gone_before_the_next_one_are_dropped() -> None:
    step = StepUnderWay()
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter])
    step.optimizer_made(optimizer)
    for size, is_kept in ((4, False), (8, True), (16, True)):
        step.backward_began(given(size), [])
        parameter.sum().backward()
        step.backward_ended()
        if not is_kept:
            optimizer.zero_grad()
    ended = step.step_ended()
    assert (sizes(ended.passes), sizes([*ended.dropped])) == ([8, 16], [4])
