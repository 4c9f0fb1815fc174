"""What a step of a training is, where several optimizers make steps."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable

import pytest
import torch
from torch.optim import SGD, Optimizer

from dmls_ray.training.observed.leader import StepRule


def optimizers(count: int) -> list[Optimizer]:
    return [SGD([torch.nn.Parameter(torch.ones(()))], lr=0.1) for _ in range(count)]


def steps_of(made: Iterable[Optimizer]) -> tuple[int, int]:
    """How many steps the training makes, and the most optimizers of a step."""
    rule = StepRule()
    of_steps = [rule.optimizers for optimizer in made if rule.optimizer_stepped(optimizer)]
    return len(of_steps), max(of_steps)


@pytest.mark.parametrize("count", [1, 2, 12, 40])
def test_optimizers_that_each_make_a_step_in_turn_make_one_step_together(count: int) -> None:
    steps, of_step = steps_of(optimizers(count) * 20)
    assert steps == 20
    assert of_step == count


def test_five_steps_of_a_discriminator_for_one_of_a_generator_are_five_steps() -> None:
    discriminator, generator = optimizers(2)
    assert steps_of([*[discriminator] * 5, generator] * 4) == (20, 2)


def test_a_second_optimizer_leads_once_the_first_makes_no_more_steps() -> None:
    first, second = optimizers(2)
    # Nine steps of the second are not yet steps of the training.
    assert steps_of([*[first] * 5, *[second] * 20]) == (5 + 20 - 9, 1)


def test_an_optimizer_that_goes_on_after_another_has_taken_the_lead_takes_turns() -> None:
    first, second = optimizers(2)
    rule = StepRule()
    took_over = []
    for optimizer in [*[first] * 5, *[second] * 12]:
        rule.optimizer_stepped(optimizer)
        took_over.append(rule.took_over)
    assert took_over == [False] * 14 + [True] + [False] * 2
    assert not rule.takes_turns
    rule.optimizer_stepped(first)
    assert rule.takes_turns


def test_an_optimizer_leads_at_once_where_the_leader_is_gone() -> None:
    rule = StepRule()
    (first,) = optimizers(1)
    assert rule.optimizer_stepped(first)
    del first
    (second,) = optimizers(1)
    assert rule.optimizer_stepped(second)


def test_the_rule_keeps_no_optimizer_alive() -> None:
    rule = StepRule()
    (first,) = optimizers(1)
    rule.optimizer_stepped(first)
    reference = weakref.ref(first)
    del first
    gc.collect()
    assert reference() is None
