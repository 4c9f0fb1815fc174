from __future__ import annotations

import numpy as np
import pytest

from benchmarks.intervals import NOISES, Scenario, simulate, simulate_race, summarize

DRAWS = 400
CHANCE = 0.025
"""Two standard errors of a share of 0.05, of so many draws."""
DRAWN = ("normal", "log-normal", "Student t(3)")


def shares(scenario: Scenario, noise: str, **blocks: int) -> dict[str, float]:
    random = np.random.default_rng(7)
    return summarize([simulate(scenario, NOISES[noise], random, **blocks) for _ in range(DRAWS)])


@pytest.mark.parametrize("noise", DRAWN)
@pytest.mark.parametrize("deviation", [0.03, 0.08])
@pytest.mark.parametrize("trials", [2, 3])
def test_sweeps_of_identical_trials_that_stop_when_they_are_decided_have_few_false_verdicts(
    trials: int, deviation: float, noise: str
) -> None:
    found = shares(Scenario("identical", [0.0] * trials, [deviation] * trials), noise)
    assert found["false verdicts"] <= 0.055 + CHANCE
    assert found["coverage"] >= 0.94 - CHANCE


@pytest.mark.parametrize("most_blocks", [3, 4, 7, 12])
@pytest.mark.parametrize("trials", [2, 4])
def test_sweeps_that_have_no_time_for_more_blocks_have_few_false_verdicts(trials: int, most_blocks: int) -> None:
    scenario = Scenario("identical", [0.0] * trials, [0.05] * trials)
    found = shares(scenario, "Student t(3)", most_blocks=most_blocks)
    assert found["false verdicts"] <= 0.055 + CHANCE
    assert found["coverage"] >= 0.94 - CHANCE


@pytest.mark.parametrize("noise", DRAWN)
def test_two_noisy_equal_trials_among_quiet_ones_have_few_false_verdicts(noise: str) -> None:
    found = shares(Scenario("noisy pair", [0.0, 0.0, 3.0, 6.0], [0.12, 0.12, 0.02, 0.02]), noise)
    assert found["false verdicts"] <= 0.055 + CHANCE
    assert found["power"] == 1
    assert found["coverage"] >= 0.94 - CHANCE


@pytest.mark.parametrize("blocks", [{"fixed": 3}, {"fixed": 5}, {"most_blocks": 4}])
@pytest.mark.parametrize("deviations", [[0.12, 0.12, *[0.02] * 6], np.geomspace(0.02, 0.12, 8).tolist()])
def test_few_blocks_of_many_equal_trials_of_unequal_noise_have_few_false_verdicts(
    deviations: list[float], blocks: dict[str, int]
) -> None:
    found = shares(Scenario("unequal noise", [0.0] * 8, deviations), "normal", **blocks)
    assert found["false verdicts"] <= 0.055 + CHANCE


@pytest.mark.parametrize("noise", DRAWN)
@pytest.mark.parametrize(("trials", "blocks"), [(2, 3), (4, 3), (3, 6), (3, 15), (8, 8)])
def test_sweeps_with_a_fixed_number_of_blocks_have_few_false_verdicts(trials: int, blocks: int, noise: str) -> None:
    found = shares(Scenario("identical", [0.0] * trials, [0.05] * trials), noise, fixed=blocks)
    assert found["false verdicts"] <= 0.055 + CHANCE


def test_three_blocks_of_four_trials_find_one_that_is_20_percent_faster_more_often_than_not() -> None:
    found = shares(Scenario("20% faster", [0.2, 0.0, 0.0, 0.0], [0.05] * 4), "normal", fixed=3)
    assert found["power"] > 0.65


def test_a_sweep_that_repeats_until_it_is_decided_finds_what_a_fixed_one_misses() -> None:
    scenario = Scenario("10% faster", [0.1, 0.0, 0.0], [0.05] * 3)
    assert shares(scenario, "normal")["power"] > 0.97
    assert shares(scenario, "normal", fixed=3)["power"] < 0.5


@pytest.mark.parametrize("trials", [2, 8])
def test_a_race_rarely_leaves_out_a_trial_that_is_as_good_as_the_best(trials: int) -> None:
    random, scenario = np.random.default_rng(7), Scenario("identical", [0.0] * trials, [0.08] * trials)
    left = [simulate_race(scenario, NOISES["normal"], random) for _ in range(DRAWS)]
    assert np.mean([len(item) < trials for item in left]) <= 0.055 + CHANCE


def test_a_race_leaves_the_best_alone() -> None:
    random, scenario = np.random.default_rng(7), Scenario("20% faster", [0.2, *[0.0] * 7], [0.05] * 8)
    left = [simulate_race(scenario, NOISES["normal"], random) for _ in range(DRAWS)]
    assert np.mean([item == [0] for item in left]) > 0.97
