from __future__ import annotations

import math

import numpy as np
import pytest

from dmls_ray.analysis.stats.overfitting import overfit_epoch
from dmls_ray.records.epoch_and_rank import EpochRecord
from dmls_ray.records.model import RunRecord
from tests.records.test_model import record


def runs(test: list[list[float]], train: list[float] | None = None) -> list[RunRecord]:
    """One run for each list of test losses; train loss falls, unless it is given."""
    records = []
    for repeat, losses in enumerate(test):
        falling = train or [1 / epoch for epoch in range(1, len(losses) + 1)]
        made = record(repeat=repeat)
        made.epochs = [
            EpochRecord(epoch=epoch, metrics={"train_loss": falling[epoch - 1], "test_loss": loss})
            for epoch, loss in enumerate(losses, start=1)
        ]
        records.append(made)
    return records


def test_a_trial_overfits_after_the_least_mean_test_loss_if_every_repeat_rises_from_there() -> None:
    losses = [[1.0, 0.5, 0.6, 0.7], [1.1, 0.52, 0.58, 0.72], [0.9, 0.51, 0.62, 0.69]]
    assert overfit_epoch(runs(losses)) == 3
    assert overfit_epoch(runs(losses[:2])) is None, "two repeats have no interval"
    assert overfit_epoch(runs(losses, train=[1.0, 0.5, 0.6, 0.7])) is None, "train loss rises, too"
    assert overfit_epoch(runs([[1.0, 0.8, 0.6]] * 3)) is None
    assert overfit_epoch(runs([[1.0, 0.5, math.inf]] * 3)) is None
    assert overfit_epoch(runs([[0.5]] * 3)) is None
    assert overfit_epoch([]) is None


def test_the_epochs_that_all_repeats_have_are_compared() -> None:
    assert overfit_epoch(runs([[1.0, 0.5, 0.6, 0.2], [1.0, 0.5, 0.6], [1.0, 0.5, 0.6]])) == 3


@pytest.mark.parametrize("repeats", [3, 5, 10])
@pytest.mark.parametrize("epochs", [5, 15, 30])
@pytest.mark.parametrize("walks", [False, True])
def test_a_level_test_loss_is_called_overfitting_at_most_5_times_in_100(repeats: int, epochs: int, walks: bool) -> None:
    random = np.random.default_rng(9)
    false = 0
    for _ in range(400):
        noise = random.normal(0, 0.001, (repeats, epochs))
        losses = 1 + (noise.cumsum(axis=1) if walks else noise)
        false += overfit_epoch(runs(losses.tolist())) is not None
    assert false <= 32  # of 400 at 1 in 20, more than 32 come once in 200


def test_a_rise_of_several_deviations_is_found() -> None:
    random = np.random.default_rng(10)
    curve = 1 + 0.002 * (np.arange(15) - 7) ** 2
    found = [overfit_epoch(runs((curve + random.normal(0, 0.01, (3, 15))).tolist())) is not None for _ in range(100)]
    assert sum(found) >= 80
