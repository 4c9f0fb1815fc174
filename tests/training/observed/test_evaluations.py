"""Which times that look like tests of a model may be a part of the training."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split

from dmls_ray.training.clocks import LeftOut
from dmls_ray.training.observed.contents import Content
from dmls_ray.training.observed.evaluations import Evaluation, doubtful_ms
from dmls_ray.training.observed.loaders import Batch, batch_of
from dmls_ray.training.observed.seen_steps import SeenStep

TRAINED, TESTED = 320, 80


def steps_on(*sizes: int) -> list[SeenStep]:
    return [SeenStep([Batch(32, 1, data=(size,), dataset=size)], [None]) for size in sizes]


def evaluation(ms: float, *data: int) -> Evaluation:
    return Evaluation(LeftOut(1, 0.0, 0.0, ms), frozenset(data))


@pytest.mark.parametrize(
    ("steps", "evaluations"),
    [
        (steps_on(TRAINED, TRAINED), [evaluation(5, TESTED)]),
        (steps_on(TRAINED, TRAINED), [evaluation(5, TESTED), evaluation(5, 70)]),
    ],
    ids=["other data", "other data of two kinds"],
)
def test_a_model_is_tested_beyond_doubt_on_data_that_training_does_not_read(
    steps: list[SeenStep], evaluations: list[Evaluation]
) -> None:
    assert doubtful_ms(evaluations, steps) == 0


def test_a_time_with_backward_passes_is_in_doubt_on_other_data() -> None:
    attack = Evaluation(LeftOut(0, 0.0, 0.005), frozenset([TESTED]), is_counted=True)
    assert doubtful_ms([attack], steps_on(TRAINED, TRAINED)) == pytest.approx(5)
    assert doubtful_ms([attack], steps_on(TESTED, TESTED)) == 0


@pytest.mark.parametrize(
    ("steps", "evaluations", "ms"),
    [
        (steps_on(TRAINED, TRAINED), [evaluation(5, TRAINED), evaluation(2, TESTED)], 5),
        (steps_on(TRAINED, TRAINED), [evaluation(5), evaluation(6)], 11),
        (steps_on(60, 120, TRAINED), [evaluation(5, TESTED), evaluation(6, TESTED)], 11),
        ([], [evaluation(5)], 5),
    ],
    ids=[
        "the data of the training",
        "no loader",
        "other data, of which the model may make those of the training",
        "no loader at all",
    ],
)
def test_on_other_data_a_model_may_work_for_the_training(
    steps: list[SeenStep], evaluations: list[Evaluation], ms: float
) -> None:
    assert doubtful_ms(evaluations, steps) == ms


def data_of(dataset: Dataset[object]) -> tuple[int, ...]:
    iterator = iter(DataLoader(dataset, batch_size=4))
    next(iterator)
    return batch_of(iterator, Content([], [])).data


def test_a_part_of_a_data_set_is_of_the_whole_one_and_not_of_another_part() -> None:
    whole = TensorDataset(torch.zeros(100, 2))
    train, test = random_split(whole, [80, 20])
    assert data_of(Subset(train, range(40))) == (40, 80, 100)
    assert data_of(whole) == (100,)
    assert not doubtful_ms([evaluation(5, *data_of(test)[:1])], [SeenStep([Batch(4, 1, data=data_of(train))])])


def test_a_data_set_that_is_made_anew_is_another_one() -> None:
    def number(dataset: Dataset[object]) -> int:
        iterator = iter(DataLoader(dataset, batch_size=4))
        next(iterator)
        return batch_of(iterator, Content([], [])).dataset

    kept = TensorDataset(torch.zeros(8, 2))
    assert number(kept) == number(kept)
    assert len({number(TensorDataset(torch.zeros(8, 2))) for _ in range(5)}) == 5
