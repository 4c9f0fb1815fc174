"""Which times that look like tests of a model may be a part of the training."""

from __future__ import annotations

import pytest
import torch

from dmls_ray.training.clocks import LeftOut
from dmls_ray.training.observed.evaluations import Evaluation, Met, doubtful_ms
from dmls_ray.training.observed.loaders import Batch
from dmls_ray.training.observed.seen_steps import SeenStep

TRAINED, TESTED = 320, 80
STEPS = [SeenStep([Batch(32, 1, data=TRAINED)], [None])] * 10


def evaluation(ms: float, data: set[int] = frozenset(), tensors: set[int] = frozenset()) -> Evaluation:
    return Evaluation(LeftOut(1, 0.0, 0.0, ms), frozenset(data), frozenset(tensors))


@pytest.mark.parametrize(
    "evaluations",
    [
        [evaluation(5, {TESTED})],
        [evaluation(5, {TESTED, TRAINED}, {7})],
        [evaluation(5, tensors={7, 8}), evaluation(5, tensors={7, 8})],
    ],
    ids=["other data", "other data besides those of the training", "the same tensors each time"],
)
def test_a_model_is_tested_beyond_doubt_on_other_data_and_on_tensors_that_come_again(
    evaluations: list[Evaluation],
) -> None:
    assert doubtful_ms(evaluations, STEPS) == 0


@pytest.mark.parametrize(
    ("evaluations", "ms"),
    [
        ([evaluation(5, {TRAINED}), evaluation(2, {TESTED})], 5),
        ([evaluation(5, tensors={7}), evaluation(6, tensors={8})], 11),
        ([evaluation(5, tensors={7, 8}), evaluation(6, tensors={7})], 5),
        ([evaluation(5), evaluation(6)], 11),
    ],
    ids=["the data of the training", "new tensors each time", "some that are new", "nothing that was seen"],
)
def test_on_what_is_trained_or_new_a_model_may_work_for_the_training(evaluations: list[Evaluation], ms: float) -> None:
    assert doubtful_ms(evaluations, STEPS) == ms


def test_a_tensor_that_comes_again_has_its_number_and_one_that_was_changed_has_another() -> None:
    met, tensor = Met(), torch.zeros(8, 2)
    first = met.number_of(tensor[:4])
    assert met.number_of(tensor[4:]) == met.number_of(tensor) == first
    assert met.number_of(tensor.clone()) != first
    assert met.number_of(tensor.add_(1)) != first


def test_a_tensor_in_the_place_of_one_that_is_gone_is_another() -> None:
    met = Met()
    numbers = {met.number_of(torch.zeros(2)) for _ in range(10)}
    assert len(numbers) == 10
