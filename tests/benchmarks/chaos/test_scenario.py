"""Seeds and the scenarios that they make."""

from __future__ import annotations

import pytest

from benchmarks.chaos.faults import KINDS
from benchmarks.chaos.places import PLACES
from benchmarks.chaos.scenario import SHORT, Size, make_scenario


def test_a_seed_makes_the_same_scenario_each_time_and_another_seed_makes_another() -> None:
    assert make_scenario(7, Size()) == make_scenario(7, Size())
    assert len({make_scenario(seed, Size()) for seed in range(20)}) == 20


def test_every_kind_of_fault_and_every_place_occurs() -> None:
    scenarios = [make_scenario(seed, Size()) for seed in range(100)]
    assert {scenario.place for scenario in scenarios} == PLACES.keys()
    assert {strike.kind for scenario in scenarios for strike in scenario.strikes} == KINDS.keys()


@pytest.mark.parametrize("seed", range(20))
def test_faults_strike_in_their_order_where_they_are_possible_and_before_the_last_rows(seed: int) -> None:
    scenario = make_scenario(seed, SHORT)
    moments = [strike.after_rows for strike in scenario.strikes]
    assert moments == sorted(moments)
    assert len(moments) == SHORT.faults
    assert moments[-1] < scenario.sweep.runs - 1
    assert all(KINDS[strike.kind].is_possible_at(PLACES[scenario.place]) for strike in scenario.strikes)


def test_kinds_and_a_place_can_be_chosen() -> None:
    scenario = make_scenario(3, Size(), kinds=["full disk", "kill supervisor"], place="disk")
    assert {strike.kind for strike in scenario.strikes} == {"full disk", "kill supervisor"}
    assert make_scenario(3, Size(), kinds=["cut link"]).place == "machines"
