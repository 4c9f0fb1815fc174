"""A part of the simulations of results/reference/intervals.md, with fewer draws."""

from __future__ import annotations

import functools
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
TWO_LOUD = [0.12, 0.12, *[0.02] * 6]
SLOW = functools.partial(pytest.param, marks=pytest.mark.slow)
RISING = np.geomspace(0.02, 0.12, 8).tolist()


def shares(measures: Sequence[Measured], noise: str, plan: Plan = AUTO) -> dict[str, float]:
    random, scenario = np.random.default_rng(7), Scenario("", measures, plan)
    return summarize([simulate(scenario, NOISES[noise], random) for _ in range(DRAWS)])


def races(measures: Sequence[Measured]) -> list[list[int]]:
    """The trials that are left at the end of each race."""
    random, scenario = np.random.default_rng(7), Scenario("", measures)
    return [simulate_race(scenario, NOISES["normal"], random) for _ in range(DRAWS)]


def equal(trials: int, deviation: float, *, measures: int = 2) -> list[Measured]:
    return speed_and_accuracy([0.0] * trials, [deviation] * trials, measures=measures)


@pytest.mark.parametrize(
    ("measures", "noise", "plan"),
    [
        # They stop when they are decided.
        (equal(2, 0.08), "normal", AUTO),
        SLOW(equal(2, 0.03), "log-normal", AUTO),
        (equal(3, 0.05), "Student t(3)", AUTO),
        # They have no time for more blocks.
        (equal(4, 0.05), "Student t(3)", Plan(most=3)),
        SLOW(equal(2, 0.05), "Student t(3)", Plan(most=12)),
        # A fixed number of blocks.
        (equal(2, 0.05), "normal", Plan(fixed=3)),
        (equal(4, 0.05), "Student t(3)", Plan(fixed=3)),
        SLOW(equal(2, 0.05), "Student t(3)", Plan(fixed=15)),
        (equal(8, 0.05), "normal", Plan(fixed=8)),
        # Four measures together.
        (equal(2, 0.08, measures=4), "normal", AUTO),
        SLOW(equal(2, 0.08, measures=4), "normal", Plan(most=4)),
        # Two equal and noisy trials among quiet ones that are far from them.
        (speed_and_accuracy([0.0, 0.0, 3.0, 6.0], [0.12, 0.12, 0.02, 0.02]), "normal", AUTO),
        SLOW(speed_and_accuracy([0.0, 0.0, 3.0, 6.0], [0.12, 0.12, 0.02, 0.02]), "log-normal", AUTO),
        # Few blocks of many trials of unequal noise.
        (speed_and_accuracy([0.0] * 8, TWO_LOUD, spread=TWO_LOUD), "normal", Plan(fixed=3)),
        SLOW(speed_and_accuracy([0.0] * 8, TWO_LOUD, spread=TWO_LOUD), "normal", Plan(most=4)),
        SLOW(speed_and_accuracy([0.0] * 8, RISING, spread=RISING), "normal", Plan(most=4)),
    ],
)
def test_sweeps_have_few_false_verdicts(measures: Sequence[Measured], noise: str, plan: Plan) -> None:
    found = shares(measures, noise, plan)
    assert found["false verdicts"] <= 0.055 + CHANCE
    assert found["coverage"] >= 0.94 - CHANCE


@pytest.mark.parametrize(
    ("speeds", "plan", "least", "most"),
    [
        ([0.2, 0.0, 0.0, 0.0], Plan(fixed=5), 0.93, 1),
        ([0.1, 0.0, 0.0], Plan(fixed=3), 0, 0.5),
        ([0.1, 0.0, 0.0], AUTO, 0.97, 1),
        ([0.0, 3.0, 6.0], AUTO, 1, 1),
    ],
)
def test_more_blocks_find_more_and_a_sweep_until_it_is_decided_finds_nearly_all(
    speeds: list[float], plan: Plan, least: float, most: float
) -> None:
    assert least <= shares(speed_and_accuracy(speeds, [0.05] * len(speeds)), "normal", plan)["power"] <= most


@pytest.mark.parametrize("trials", [2, 8])
def test_a_race_rarely_leaves_out_a_trial_that_is_as_good_as_the_best(trials: int) -> None:
    assert np.mean([len(left) < trials for left in races(equal(trials, 0.08))]) <= 0.055 + CHANCE


def test_a_race_leaves_the_best_alone() -> None:
    left = races(speed_and_accuracy([0.2, *[0.0] * 7], [0.05] * 8))
    assert np.mean([trials == [0] for trials in left]) > 0.97
