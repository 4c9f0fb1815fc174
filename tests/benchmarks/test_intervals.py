from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.intervals import (
    NOISES,
    Measured,
    Plan,
    Scenario,
    simulate,
    simulate_race,
    speed_and_accuracy,
    summarize,
)

DRAWS = 400
CHANCE = 0.025
"""Two standard errors of a share of 0.05, of so many draws."""
AUTO = Plan()


def shares(measures: Sequence[Measured], noise: str, plan: Plan = AUTO) -> dict[str, float]:
    random, scenario = np.random.default_rng(7), Scenario("", measures, plan)
    return summarize([simulate(scenario, NOISES[noise], random) for _ in range(DRAWS)])


def equal(trials: int, deviation: float, *, measures: int = 2) -> list[Measured]:
    return speed_and_accuracy([0.0] * trials, [deviation] * trials, measures=measures)


@pytest.mark.parametrize(
    ("trials", "deviation", "noise"), [(2, 0.08, "normal"), (2, 0.03, "log-normal"), (3, 0.05, "Student t(3)")]
)
def test_sweeps_of_identical_trials_that_stop_when_they_are_decided_have_few_false_verdicts(
    trials: int, deviation: float, noise: str
) -> None:
    found = shares(equal(trials, deviation), noise)
    assert found["false verdicts"] <= 0.055 + CHANCE
    assert found["coverage"] >= 0.94 - CHANCE


@pytest.mark.parametrize(("trials", "most"), [(2, 3), (4, 3), (2, 4), (4, 7), (2, 12)])
def test_sweeps_that_have_no_time_for_more_blocks_have_few_false_verdicts(trials: int, most: int) -> None:
    found = shares(equal(trials, 0.05), "Student t(3)", Plan(most=most))
    assert found["false verdicts"] <= 0.055 + CHANCE
    assert found["coverage"] >= 0.94 - CHANCE


@pytest.mark.parametrize("plan", [Plan(fixed=3), Plan(most=4), AUTO])
def test_four_measures_of_two_equal_trials_have_few_false_verdicts_together(plan: Plan) -> None:
    assert shares(equal(2, 0.08, measures=4), "normal", plan)["false verdicts"] <= 0.055 + CHANCE


@pytest.mark.parametrize("noise", ["normal", "log-normal"])
def test_two_noisy_equal_trials_among_quiet_ones_have_few_false_verdicts(noise: str) -> None:
    found = shares(speed_and_accuracy([0.0, 0.0, 3.0, 6.0], [0.12, 0.12, 0.02, 0.02]), noise)
    assert found["false verdicts"] <= 0.055 + CHANCE
    assert found["power"] == 1
    assert found["coverage"] >= 0.94 - CHANCE


@pytest.mark.parametrize("plan", [Plan(fixed=3), Plan(most=4)])
@pytest.mark.parametrize("deviations", [[0.12, 0.12, *[0.02] * 6], np.geomspace(0.02, 0.12, 8).tolist()])
def test_few_blocks_of_many_equal_trials_of_unequal_noise_have_few_false_verdicts(
    deviations: list[float], plan: Plan
) -> None:
    found = shares(speed_and_accuracy([0.0] * 8, deviations, spread=deviations), "normal", plan)
    assert found["false verdicts"] <= 0.055 + CHANCE


@pytest.mark.parametrize(
    ("trials", "blocks", "noise"),
    [
        (2, 3, "normal"),
        (2, 3, "log-normal"),
        (4, 3, "Student t(3)"),
        (3, 6, "log-normal"),
        (2, 15, "Student t(3)"),
        (8, 8, "normal"),
    ],
)
def test_sweeps_with_a_fixed_number_of_blocks_have_few_false_verdicts(trials: int, blocks: int, noise: str) -> None:
    found = shares(equal(trials, 0.05), noise, Plan(fixed=blocks))
    assert found["false verdicts"] <= 0.055 + CHANCE


def test_of_four_trials_three_blocks_find_one_that_is_20_percent_faster_half_of_the_time_and_five_nearly_always() -> (
    None
):
    measures = speed_and_accuracy([0.2, 0.0, 0.0, 0.0], [0.05] * 4)
    assert shares(measures, "normal", Plan(fixed=3))["power"] > 0.5
    assert shares(measures, "normal", Plan(fixed=5))["power"] > 0.93


def test_a_sweep_that_repeats_until_it_is_decided_finds_what_a_fixed_one_misses() -> None:
    measures = speed_and_accuracy([0.1, 0.0, 0.0], [0.05] * 3)
    assert shares(measures, "normal")["power"] > 0.97
    assert shares(measures, "normal", Plan(fixed=3))["power"] < 0.5


@pytest.mark.parametrize("trials", [2, 8])
def test_a_race_rarely_leaves_out_a_trial_that_is_as_good_as_the_best(trials: int) -> None:
    random, scenario = np.random.default_rng(7), Scenario("", equal(trials, 0.08))
    left = [simulate_race(scenario, NOISES["normal"], random) for _ in range(DRAWS)]
    assert np.mean([len(item) < trials for item in left]) <= 0.055 + CHANCE


def test_a_race_leaves_the_best_alone() -> None:
    random, scenario = np.random.default_rng(7), Scenario("", speed_and_accuracy([0.2, *[0.0] * 7], [0.05] * 8))
    left = [simulate_race(scenario, NOISES["normal"], random) for _ in range(DRAWS)]
    assert np.mean([item == [0] for item in left]) > 0.97
