from __future__ import annotations

import math

import numpy as np
import pytest

from dmls_ray.analysis.stats.formatting import INTEGER, SECONDS
from dmls_ray.analysis.stats.learning import overfit_epoch, steps_to_target, time_to_target
from dmls_ray.records.model import EpochRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from tests.records.test_model import record


def runs(times: list[float | None], *, total_s: float = 10.0, outcome: Outcome = Outcome.OK) -> list[RunRecord]:
    """Runs that reached 0.9 after so many seconds, or never."""
    records = []
    for repeat, time in enumerate(times):
        config, metrics = {"target_accuracy": 0.9}, {"total_s": total_s}
        if time is not None:
            metrics["target_s"] = time
        run = record(repeat=repeat, outcome=outcome, config=config, metrics=metrics)
        run.epochs = [EpochRecord(epoch=1, metrics={"test_accuracy": 0.5, "ended_s": 1.0})]
        records.append(run)
    return records


@pytest.mark.parametrize(
    ("observed", "text"),
    [
        (runs([1.0, 1.1, 1.2]), "1.10 [0.87, 1.38]"),  # their geometric mean
        (runs([1.0, 2.0, None, None, None]), "not yet (2 of 5)"),
        (runs([1.0, 2.0, 3.0, 4.0, None]), "3.000 [1.000, inf] (4 of 5)"),
        (runs([1.0, 2.0, None]), "2.000 (2 of 3)"),  # too few for an interval
        (runs([None, None]), "not yet (0 of 2)"),
        # All had the same epochs, and one in five got there: half of them have not, however long they took.
        ([*runs([10.0], total_s=10.2), *runs([None] * 4, total_s=9.9)], "not yet (1 of 5)"),
        ([*runs([5.0]), *runs([None] * 4, total_s=0.1, outcome=Outcome.ERROR)], "not yet (1 of 5)"),
        # A run that diverged waits for as long as any.
        ([*runs([1.0, 2.0]), *runs([None] * 3, total_s=0.1, outcome=Outcome.DIVERGED)], "not yet (2 of 5)"),
    ],
)
def test_the_time_to_the_target_is_the_median_of_runs_of_which_some_never_reach_it(
    observed: list[RunRecord], text: str
) -> None:
    assert time_to_target(observed).describe(SECONDS) == text


@pytest.mark.parametrize("count", [24, 38, 44, 46, 54, 62, 66, 74, 88])
def test_half_of_the_runs_are_a_median_whatever_the_rounding_of_their_survival(count: int) -> None:
    times = [float(place) for place in range(1, count // 2 + 1)]
    found = time_to_target(runs([*times, *[None] * len(times)], total_s=1000.0))
    assert found.centre == count // 2


def test_a_run_that_was_cut_short_says_nothing_of_what_came_later() -> None:
    # Kaplan and Meier by hand: the run that was killed at 1.5 s leaves three at risk; 4/5, then 4/5 x 2/3, then 4/5 x
    # 1/3.
    killed = runs([None], total_s=1.5, outcome=Outcome.KILLED)
    found = time_to_target([*runs([1.0, 2.0, 3.0, None], total_s=9.0), *killed])
    assert found.centre == 3.0


def test_any_target_is_found_in_the_epochs() -> None:
    (run,) = runs([None])
    run.epochs.append(EpochRecord(epoch=2, metrics={"test_accuracy": 0.8, "ended_s": 3.75}))
    assert time_to_target([run], 0.7).describe(SECONDS) == "3.750"


def test_without_a_target_or_a_run_that_tried_there_is_nothing() -> None:
    (run,) = runs([1.0])
    run.config = {}
    assert time_to_target([run]) is None
    skipped = runs([None], outcome=Outcome.SKIPPED)
    assert time_to_target(skipped, 0.9) is None


def test_a_run_without_accuracies_by_epoch_has_no_known_time_to_the_target() -> None:
    (silent,) = runs([None])
    silent.epochs, silent.metrics["test_accuracy"] = [], 0.99
    assert time_to_target([silent]) is None
    assert time_to_target([silent, *runs([2.0])]).describe(SECONDS) == "2.000"


def test_steps_to_the_target_are_counted_as_the_time_is() -> None:
    reached = runs([1.0, 2.0, 4.0])
    for run, steps in zip(reached, (10, 20, 40), strict=True):
        run.metrics["steps"], run.metrics["target_steps"] = 100, steps
    missed = runs([None, None])
    for run in missed:
        run.metrics["steps"] = 100
    found = steps_to_target([*reached, *missed])
    assert (found.centre, found.describe(INTEGER)) == (40, "40 [10, inf] (3 of 5)")


def test_steps_to_the_target_are_unknown_where_a_run_reached_it_and_does_not_say_when() -> None:
    reached = runs([1.0, 2.0])
    reached[0].metrics["target_steps"] = 10
    assert steps_to_target(reached) is None
    assert steps_to_target([]) is None


def losses_of_runs(test: list[list[float]], train: list[float] | None = None) -> list[RunRecord]:
    """One run for each list of test losses; train loss falls, unless it is given."""
    records = []
    for repeat, losses in enumerate(test):
        made = record(repeat=repeat)
        for epoch, loss in enumerate(losses, start=1):
            falling = train[epoch - 1] if train else 1 / epoch
            made.epochs.append(EpochRecord(epoch=epoch, metrics={"train_loss": falling, "test_loss": loss}))
        records.append(made)
    return records


def test_a_trial_overfits_after_the_least_mean_test_loss_if_every_repeat_rises_from_there() -> None:
    losses = [[1.0, 0.5, 0.6, 0.7], [1.1, 0.52, 0.58, 0.72], [0.9, 0.51, 0.62, 0.69]]
    assert overfit_epoch(losses_of_runs(losses)) == 3
    assert overfit_epoch(losses_of_runs(losses[:2])) is None, "two repeats have no interval"
    assert overfit_epoch(losses_of_runs(losses, train=[1.0, 0.5, 0.6, 0.7])) is None, "train loss rises, too"
    assert overfit_epoch(losses_of_runs([[1.0, 0.8, 0.6]] * 3)) is None
    assert overfit_epoch(losses_of_runs([[1.0, 0.5, math.inf]] * 3)) is None
    assert overfit_epoch(losses_of_runs([[0.5]] * 3)) is None
    assert overfit_epoch([]) is None


def test_the_epochs_that_all_repeats_have_are_compared() -> None:
    assert overfit_epoch(losses_of_runs([[1.0, 0.5, 0.6, 0.2], [1.0, 0.5, 0.6], [1.0, 0.5, 0.6]])) == 3


@pytest.mark.parametrize("repeats", [3, 5, 10])
@pytest.mark.parametrize("epochs", [5, 15, 30])
@pytest.mark.parametrize("walks", [False, True])
def test_a_level_test_loss_is_called_overfitting_at_most_5_times_in_100(repeats: int, epochs: int, walks: bool) -> None:
    random = np.random.default_rng(9)
    false = 0
    for _ in range(400):
        noise = random.normal(0, 0.001, (repeats, epochs))
        losses = 1 + (noise.cumsum(axis=1) if walks else noise)
        false += overfit_epoch(losses_of_runs(losses.tolist())) is not None
    assert false <= 32  # of 400 at 1 in 20, more than 32 come once in 200


def test_a_rise_of_several_deviations_is_found() -> None:
    random = np.random.default_rng(10)
    curve = 1 + 0.002 * (np.arange(15) - 7) ** 2
    found = 0
    for _ in range(100):
        losses = curve + random.normal(0, 0.01, (3, 15))
        found += overfit_epoch(losses_of_runs(losses.tolist())) is not None
    assert found >= 80
